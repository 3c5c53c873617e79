/* Starts a deck: formulas first, then reveal.js; a slide that is too full gets smaller letters. On a
   screen that stands upright a slide has its shape, so that it is not a strip in the middle. */
"use strict";

const SMALLEST = 0.6; // of a slide's letters; what is too large then does not fit
const LARGEST = 1.35; // of a formula's letters
const STEP = 0.05;

/* The choice of light or dark that the site's pages keep; "auto" is the system's. */
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a browser that keeps nothing for pages from the disk */ }

/* No line begins with the comma behind a formula. */
function keepTogether(formula) {
  const [sign] = /^[.,:;)]+/.exec(formula.nextSibling?.textContent ?? "") ?? [""];
  if (!sign || formula.nextSibling.nodeType !== Node.TEXT_NODE) return;
  const whole = document.createElement("span");
  whole.className = "whole";
  formula.nextSibling.textContent = formula.nextSibling.textContent.slice(sign.length);
  formula.replaceWith(whole);
  whole.append(formula, sign);
}

const WIDE = [1280, 720];
const UPRIGHT = 560; // the width of an upright slide, in its own pixels: letters of a phone's size

function shape() {
  const [wide, high] = [window.innerWidth, window.innerHeight];
  const upright = high > wide && wide < 900;
  document.documentElement.classList.toggle("upright", upright);
  const [width, height] = upright ? [UPRIGHT, Math.round((UPRIGHT * high) / wide)] : WIDE;
  document.documentElement.style.setProperty("--slide-width", `${width}px`);
  document.documentElement.style.setProperty("--slide-height", `${height}px`);
  return { width, height };
}

function fits(slide) {
  return [slide, ...slide.querySelectorAll(".pictures, .pictures > *, figure")].every(
    (box) => box.scrollHeight <= box.clientHeight + 1 && box.scrollWidth <= box.clientWidth + 1,
  );
}

/* A formula that is too wide gets smaller by itself. */
function narrow(formula) {
  for (let size = LARGEST; size >= SMALLEST; size -= STEP) {
    formula.style.fontSize = `${size}em`;
    if (formula.scrollWidth <= formula.clientWidth) return;
  }
}

function fit(slide) {
  slide.style.removeProperty("--letters");
  slide.querySelectorAll(".pictures > .math").forEach(narrow);
  for (let size = 1; !fits(slide) && size > SMALLEST; ) {
    size = Math.max(SMALLEST, Math.round(100 * (size - STEP)) / 100);
    slide.style.setProperty("--letters", size);
  }
}

/* The speaker's view copies formulas into a window without MathJax: each holds its own glyphs, and
   has no twin for screen readers, which would be seen there. */
window.MathJax = {
  svg: { fontCache: "local" },
  startup: {
    pageReady: async () => {
      await MathJax.startup.defaultPageReady();
      document.querySelectorAll(".notes mjx-assistive-mml").forEach((twin) => twin.remove());
      document.querySelectorAll(".reveal span.math").forEach(keepTogether);
      const deck = new Reveal(document.querySelector(".reveal"), {
        ...shape(),
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
      window.addEventListener("resize", () => {
        deck.configure(shape());
        fit(deck.getCurrentSlide());
      });
    },
  },
};
