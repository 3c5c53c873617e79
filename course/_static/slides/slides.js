/* Starts a deck: formulas first, then reveal.js; a slide that is too full gets smaller letters. */
"use strict";

const SMALLEST = 0.6; // of the letters of a slide; what is larger then does not fit
const STEP = 0.05;

/* The choice of light or dark that the site's pages keep; "auto" is the system's. */
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a browser that keeps nothing for pages from the disk */ }

function fits(slide) {
  return [slide, ...slide.querySelectorAll(".pictures, .pictures > *, figure")].every(
    (box) => box.scrollHeight <= box.clientHeight + 1 && box.scrollWidth <= box.clientWidth + 1,
  );
}

function fit(slide) {
  slide.style.removeProperty("--letters");
  for (let size = 1; !fits(slide) && size > SMALLEST; ) {
    size = Math.max(SMALLEST, size - STEP);
    slide.style.setProperty("--letters", size);
  }
}

/* Each formula holds its own glyphs, for the speaker's view copies it into another window. */
window.MathJax = {
  svg: { fontCache: "local" },
  startup: {
    pageReady: async () => {
      await MathJax.startup.defaultPageReady();
      const deck = new Reveal(document.querySelector(".reveal"), {
        width: 1280,
        height: 720,
        margin: 0,
        center: false,
        display: "flex",
        transition: "none",
        hash: true,
        slideNumber: "c/t",
        scrollActivationWidth: 0,
        plugins: [RevealNotes],
      });
      deck.on("ready", (event) => fit(event.currentSlide));
      deck.on("slidechanged", (event) => fit(event.currentSlide));
      await deck.initialize();
      window.deck = deck;
    },
  },
};
