"""Builds the site and opens it in headless Chromium from the disk, on a phone's width too."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from efflib.finetuning.bills import bill
from efflib.meter.roofline import GPUS
from efflib.models.config import LlamaConfig
from efflib.serving.decoder import MODELS
from efflib.serving.memory import W4, devices_needed, gpu_memory
from efflib.serving.roofline import Machine, latency

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
SHOTS = ROOT / "build" / "screenshots"
PAGES = ["index", "calculators", "gallery", "syllabus", "chapters/lab09_speculative"]


def opened(
    browser, path: Path, width: int = 1280, scheme: str = "light"
) -> tuple[Page, list, list]:
    """The page, the addresses that it asked for, and what went wrong in it."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(path.as_uri())
    return page, asked, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_window_and_asks_only_its_own_site(site, browser, name, width, scheme):
    page, asked, wrong = opened(browser, site / f"{name}.html", width, scheme)
    page.wait_for_timeout(500)  # formulas are set
    SHOTS.mkdir(parents=True, exist_ok=True)
    shot = f"site_{Path(name).name}_{width}_{scheme}.png"
    page.screenshot(path=SHOTS / shot, full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert [url for url in asked if not url.startswith((site.as_uri(), "data:"))] == []
    assert wrong == []
    page.close()


@pytest.fixture
def calculators(site, browser):
    page, _, wrong = opened(browser, site / "calculators.html")
    yield page
    assert wrong == []
    page.close()


def answer(page: Page, calculator: str, name: str):
    """The second cell of the row with this name."""
    return page.locator(f"#{calculator} tr").filter(has_text=name).first.locator("td").nth(1)


def test_memory_answers_for_the_config_that_is_pasted(calculators):
    expect(answer(calculators, "calc-memory", "cache of one token")).to_have_text("512 KiB")
    expect(answer(calculators, "calc-memory", "sequences of 4,096")).to_have_text("4")
    calculators.locator("#calc-memory-preset").select_option("llama-3.1-70b")
    expect(answer(calculators, "calc-memory", "cache of one token")).to_have_text("320 KiB")
    expect(answer(calculators, "calc-memory", "sequences of 4,096")).to_have_text("0")
    calculators.locator("#calc-memory summary").click()
    text = calculators.locator("#calc-memory-model").input_value()
    calculators.locator("#calc-memory-model").fill(text.replace('heads": 8', 'heads": 64'))
    expect(answer(calculators, "calc-memory", "cache of one token")).to_have_text("2.5 MiB")


def test_limits_and_budgets_answer(calculators):
    expect(answer(calculators, "calc-limits", "the GPU's ridge")).to_have_text("295.3")
    expect(answer(calculators, "calc-limits", "in no batch from")).to_have_text("85 cached tokens")
    calculators.locator("#calc-limits-cached").fill("100")
    expect(answer(calculators, "calc-limits", "decides from")).to_have_text("never")
    expect(answer(calculators, "calc-budget", "20 tokens a parameter")).to_have_text("26")
    calculators.locator("#calc-budget-parameters").fill("26.96")
    expect(answer(calculators, "calc-budget", "this model")).to_have_text("27")


def test_the_roofline_answers(calculators):
    calculators.locator("#calc-roofline-weights").select_option("16 bits")
    for name in ("RTX 4090", "H200"):
        calculators.locator("#calc-roofline-gpu").select_option(name)
        machine = Machine(GPUS[name].bandwidth, GPUS[name].tensor["fp16"])
        tpot = latency(MODELS["llama-2-7b"], machine, 512, 128).tpot
        shown = answer(calculators, "calc-roofline", "(TPOT)")
        expect(shown).to_have_text(f"{1000 * tpot:.3g} ms")
    calculators.locator("#calc-roofline-prompt").fill("1")
    expect(answer(calculators, "calc-roofline", "decides from")).to_contain_text(" sequences")


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("memory-model", "{", "this is no JSON"),
        ("memory-model", '{"model_type": "bert"}', 'model_type "bert" is not known'),
        ("memory-model", "[1]", "a config is an object"),
        ("memory-model", "{}", "the config lacks hidden_size"),
        ("memory-tokens", "", "nothing: it must be a whole number from 1 to 10,000,000"),
        ("memory-tokens", "1.5", "1.5: it must be a whole number"),
        ("memory-tokens", "8k", "8k: written out, please"),
        ("memory-tokens", "1,00", "1,00: it must be a whole number"),
        ("memory-tokens", "1.000.000", "1.000.000: it must be a whole number"),
        ("speculation-a", "0,8", "0,8: it must be a number from 0 to 1"),
        ("memory-model", '{"model_type": "llama4"}', "the config lacks text_config"),
        ("knee-points", "30 1.2", "a line is a rate above 0 and a share from 0 to 1"),
        ("knee-points", "30 1\n30 0.9", "a rate stands twice"),
        ("memory-batch", "-3", "-3: it must be a whole number from 1"),
        ("memory-reserve", "95", "from 0 to 90"),
        ("roofline-prompt", "many", "many: it must be a whole number"),
        ("speculation-a", "2", "2: it must be a number from 0 to 1"),
        ("formats-bits", "9", "9: it must be a whole number from 2 to 8"),
    ],
)
def test_bad_input_is_named_beside_its_field(calculators, field, text, said):
    place = calculators.locator(f"#calc-{field}")
    output = calculators.locator(f"#calc-{field.partition('-')[0]} .calc-output")
    before = place.input_value()
    if field == "memory-model":
        calculators.locator("#calc-memory summary").click()
    assert text != before
    place.fill(text)
    expect(calculators.locator(f"#calc-{field}-fault")).to_contain_text(said)
    expect(place).to_have_attribute("aria-invalid", "true")
    expect(output).to_have_class("calc-output calc-stale")
    place.fill(before)
    expect(calculators.locator(f"#calc-{field}-fault")).to_be_empty()
    expect(output).to_have_class("calc-output")


@pytest.mark.parametrize("text", ["131,072", "131 072", "131_072", " 131072 ", "131\u202f072"])
def test_thousands_may_stand_apart(calculators, text):
    """As the tables write them."""
    calculators.locator("#calc-memory-tokens").fill(text)
    expect(calculators.locator("#calc-memory-tokens-fault")).to_be_empty()
    expect(answer(calculators, "calc-memory", "cache of 131,072 tokens")).to_have_text("64 GiB")


@pytest.mark.parametrize("calculator", ["memory", "roofline"])
def test_what_does_not_fit_is_said_first(calculators, calculator):
    """DeepSeek-V3 on an RTX 4090 had 49 tokens a second, and no word of its 350 GB."""
    first = calculators.locator(f"#calc-{calculator} .calc-output > :first-child")
    calculators.locator(f"#calc-{calculator}-weights").select_option("4 bits, groups of 128")
    expect(first).not_to_contain_text("Does not fit")
    calculators.locator(f"#calc-{calculator}-preset").select_option("deepseek-v3")
    m = MODELS["deepseek-v3"]
    tokens = 4096 if calculator == "memory" else 512 + 128
    needed = devices_needed(m, gpu_memory("RTX 4090"), tokens, 1, W4)
    expect(first).to_contain_text("Does not fit on one: the weights alone take")
    expect(first).to_contain_text(f"{needed} GPUs would hold it")
    calculators.locator(f"#calc-{calculator}-preset").select_option("llama-2-7b")
    calculators.locator(f"#calc-{calculator}-batch").fill("1,000")
    expect(first).to_contain_text("weights and the cache of 1,000")


def test_a_batch_wakes_experts(calculators):
    """Mixtral in 4 bits, 16 sequences: 7.92 of 8 experts a layer; 1.67 ms were a third of it."""
    calculators.locator("#calc-roofline-preset").select_option("mixtral-8x7b")
    calculators.locator("#calc-roofline-gpu").select_option("H200")
    calculators.locator("#calc-roofline-batch").fill("16")
    expect(answer(calculators, "calc-roofline", "a step wakes")).to_have_text("7.92 of 8")
    machine = Machine(GPUS["H200"].bandwidth, GPUS["H200"].tensor["fp16"])
    tpot = latency(MODELS["mixtral-8x7b"], machine, 512, 128, 16, W4).tpot
    assert tpot > 4.9e-3
    expect(answer(calculators, "calc-roofline", "(TPOT)")).to_have_text(f"{1000 * tpot:.3g} ms")
    expect(answer(calculators, "calc-experts", "16")).to_have_text("7.92")


def test_layers_that_differ_and_towers_are_named(calculators):
    output = calculators.locator("#calc-memory .calc-note")
    calculators.locator("#calc-memory-preset").select_option("gemma-3-27b")
    expect(output).to_have_text("52 layers keep a window of 1,024 tokens, 10 keep everything.")
    calculators.locator("#calc-memory-preset").select_option("llama-4-scout")
    expect(output).to_contain_text("36 layers keep chunks of 8,192 tokens, 12 keep everything.")
    calculators.locator("#calc-memory summary").click()
    text = '{"model_type": "gemma3", "text_config": {"hidden_size": 2560, '
    text += '"intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}}'
    calculators.locator("#calc-memory-model").fill(text)
    expect(output).to_contain_text("the part that reads pictures is not counted")


def test_what_the_later_labs_compute(calculators):
    expect(answer(calculators, "calc-tokens", "everything")).to_have_text("4 GiB")
    expect(answer(calculators, "calc-tokens", "keep 1,024")).to_have_text("128 MiB")
    expect(answer(calculators, "calc-knee", "knee")).to_have_text("43.6")  # 40 + 10 (5 / 14)
    calculators.locator("#calc-knee-goal").fill("0.3")
    expect(answer(calculators, "calc-knee", "knee")).to_contain_text("60 or more")
    trained = bill("lora", 16, LlamaConfig(128256, 4096, 14336, 32, 32, 8, 128)).trained
    expect(answer(calculators, "calc-bills", "LoRA, r = 16")).to_have_text(f"{trained:,}")
    better = answer(calculators, "calc-plans", "better of the two")
    expect(better).to_have_text("pipeline")
    calculators.locator("#calc-plans-alpha").fill("3")
    calculators.locator("#calc-plans-speed").fill("450")
    expect(better).to_have_text("tensor")  # as the chapter's table: 2.17 / 3.95 ms
    expect(answer(calculators, "calc-plans", "tensor parallel")).to_have_text("2.17 ms")
    expect(answer(calculators, "calc-plans", "whole copy")).to_have_text("3.94 ms")


def test_charts_follow_the_fields(calculators):
    chart = calculators.locator("#calc-speculation svg")
    expect(chart).to_have_attribute(
        "aria-label", "Speed-up against the draft length, best 2.47 at 6"
    )
    calculators.locator("#calc-speculation-c").fill("1")
    expect(chart).to_have_attribute("aria-label", "Speed-up against the draft length, best 1 at 0")
    expect(answer(calculators, "calc-formats", "NF4, doubly quantized")).to_have_text("4.127")
    expect(answer(calculators, "calc-formats", "scale and zero point for 128")).to_have_text(
        "4.156"
    )


def click(page: Page, name: str, times: int = 1) -> None:
    for _ in range(times):
        page.locator("#calc-paged").get_by_role("button", name=name, exact=True).click()


def test_paged_attention_plays_the_example(calculators):
    paged = calculators.locator("#calc-paged")
    click(calculators, "Next", 4)
    expect(paged).to_contain_text("A writes “renowned”: its blocks were full, so it takes block 4.")
    expect(paged).to_contain_text("A: table 7 1 4, 9 tokens")
    click(calculators, "Next", 2)
    expect(paged).to_contain_text("block 4 had two owners, so it was copied to 2 first")
    expect(paged).to_contain_text("B: table 7 1 2, 10 tokens")
    click(calculators, "Next")
    expect(paged).to_contain_text("A writes “for” in place: block 4 has no other owner")
    expect(paged.get_by_role("button", name="Next", exact=True)).to_be_disabled()
    click(calculators, "Back", 3)
    expect(paged.locator("li")).to_have_count(2)  # A, and what is free


def test_paged_attention_goes_on_by_hand_until_the_blocks_are_gone(calculators):
    paged = calculators.locator("#calc-paged")
    click(calculators, "A begins")
    click(calculators, "A writes a word", 13)
    expect(paged).to_contain_text("A: table 7 1 4 2, 16 tokens")
    click(calculators, "A writes a word")
    expect(paged.get_by_role("alert")).to_contain_text("blocks needed: 1, free: 0")
    expect(paged).to_contain_text("A: table 7 1 4 2, 16 tokens")
    click(calculators, "A ends")
    expect(paged).to_contain_text("free, next one first: 2 4 1 7")


def test_the_fold_of_a_config_is_closed_and_does_not_hide_a_fault(calculators):
    text, fold = calculators.locator("#calc-memory-model"), "#calc-memory summary"
    expect(text).to_be_hidden()
    calculators.locator(fold).click()
    text.fill("{")
    calculators.locator(fold).click()
    expect(calculators.locator("#calc-memory-model-fault")).to_be_visible()


def test_fields_are_large_enough_for_a_finger_and_stand_near_their_result(site, browser):
    page, _, _ = opened(browser, site / "calculators.html", 390)
    for place in page.locator(".calculator input, .calculator select, .calculator button").all():
        assert place.bounding_box()["height"] >= 44
    form = page.locator("#calc-memory .calc-fields").bounding_box()
    assert form["height"] <= 450
    page.close()


def test_the_three_ways_are_whole_in_the_first_window(site, browser):
    page, _, _ = opened(browser, site / "index.html")
    box = page.locator(".starts").bounding_box()
    assert box["y"] + box["height"] <= 800
    page.close()


def test_texts_of_the_map_stay_in_their_boxes(site, browser):
    page, _, _ = opened(browser, site / "index.html")
    outside = """[...document.querySelectorAll(".lab-map text")].filter((text) =>
      text.getBBox().x + text.getBBox().width
      > text.parentNode.querySelector("rect").getBBox().x + 150).map((text) => text.textContent)"""
    assert page.evaluate(outside) == []
    page.close()


@pytest.mark.parametrize(("width", "kind"), [(390, "list"), (1280, "map")])
def test_the_map_leads_to_a_chapter(site, browser, width, kind):
    page, _, _ = opened(browser, site / "index.html", width)
    expect(page.locator(".lab-map, .lab-list").locator("visible=true")).to_have_count(1)
    page.locator(f".lab-{kind} a").filter(has_text="05 KV cache").click()
    expect(page.locator("h1")).to_contain_text("The key-value cache")
    page.close()


def test_a_search_finds_the_chapter_that_introduces_a_term_first(site, browser):
    page, _, _ = opened(browser, site / "search.html")
    page.goto((site / "search.html").as_uri() + "?q=zero+point")
    expect(page.locator("#search-results")).to_contain_text("Search finished")
    names = page.locator("ul.search li > a").all_inner_texts()
    others = ("Activation-aware weight quantization (AWQ)", "A term in twelve weeks")
    assert all(names.index("Linear and k-means quantization") < names.index(x) for x in others)
    page.close()
