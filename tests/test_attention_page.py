"""Attention pages and pictures: content, limits, hostile text, and interaction in a browser."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from browser import overflowing_elements
from mtcli.config.alignment import AlignmentHeads
from mtcli.reporting.attention import page as page_module
from mtcli.reporting.attention.compact import encode_weights
from mtcli.reporting.attention.maps import AttentionStack, SentenceAttention
from mtcli.reporting.attention.page import attention_page
from mtcli.reporting.attention.picture import svg_picture

LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "]]>&amp;\"'",
    "\x00\x1b[31m",
    "שלום",
    "👩‍👩‍👧",
    "$\\frac{",
]


def random_stack(rows, columns, n_layers=3, n_heads=2, seed=0) -> AttentionStack:
    shape = n_layers, n_heads, len(rows), len(columns)
    weights = np.random.default_rng(seed).dirichlet(np.ones(shape[-1]) / 4, shape[:-1])
    return AttentionStack(rows, columns, weights)


def make_sentence(source, target, heads=(0,), seed=0) -> SentenceAttention:
    columns, rows, inputs = [*source, "</s>"], [*target, "</s>"], ["<s>", *target]
    stacks = {
        "cross": random_stack(rows, columns, seed=seed),
        "decoder": random_stack(rows, inputs, n_layers=2, seed=seed + 1),
        "encoder": random_stack(columns, columns, n_layers=1, seed=seed + 2),
    }
    texts = (" ".join(pieces).replace("▁", "") for pieces in (source, target))
    return SentenceAttention(*texts, stacks, AlignmentHeads(1, heads))


ONE = make_sentence(["▁my", "▁dog", "s"], ["▁meine", "▁Hunde"])
OTHER = make_sentence(["▁wa", "ter"], ["▁Wasser"], heads=(0, 1), seed=7)
TEXT_OF_HOSTILE = make_sentence([f"▁{text}" for text in HOSTILE], HOSTILE)


def decoded(kind: dict) -> str:
    """Return the weights of a kind, with one character each."""
    run = lambda match: "A" * LEVELS.index(match[1])  # noqa: E731
    return re.sub("~(.)", run, kind["weights"])


def page_data(html: str) -> list[dict]:
    [text] = re.findall(r'id="attention-data">(.*?)</script>', html, re.DOTALL)
    return json.loads(text)


def shown_weights(page) -> np.ndarray:
    """Return the weights of the map on the page or in a part of it."""
    rows = page.locator("table.attention tbody tr")
    cells = page.locator("table.attention tbody td").evaluate_all(
        "cells => cells.map(cell => +cell.style.getPropertyValue('--weight'))"
    )
    return np.array(cells).reshape(rows.count(), -1)


def control(page, name: str):
    """Return the control that selects the kind, layer or head of the first map."""
    return page.locator(".attention-view select").nth(["kind", "layer", "head"].index(name))


def choose(page, name: str, value: str | None = None, label: str | None = None) -> None:
    control(page, name).select_option(value, label=label)


def check_every_map(page, sentence: SentenceAttention) -> None:
    """Select every kind, layer and head, and compare the map with the weights of the sentence."""
    for number, stack in enumerate(sentence.stacks.values()):
        choose(page, "kind", str(number))
        for layer in range(stack.n_layers):
            if stack.n_layers > 1:
                choose(page, "layer", str(layer))
            for head in range(stack.n_heads):
                choose(page, "head", str(head))
                check_map(page, stack.weights[layer, head])
            choose(page, "head", label="mean of all heads")
            check_map(page, stack.weights[layer].mean(axis=0))


def check_map(page, expected) -> None:
    found = shown_weights(page)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1.5 / 63)


def test_a_page_opens_with_the_map_of_the_alignment(open_page):
    page = open_page(attention_page([ONE], "demo"))
    check_map(page, ONE.stacks["cross"].weights[1, 0])
    assert page.title() == "Attention of demo"
    assert page.locator("#source").text_content() == "my dog s"
    labels = page.locator("table.attention tbody th").all_text_contents()
    assert labels == ["meine", "Hunde", "</s>"]
    columns = page.locator("table.attention thead th").all_text_contents()
    assert columns == ["my", "dog", "-s", "</s>"]
    caption = page.locator("table.attention caption").text_content()
    assert caption == "cross-attention, layer 2, head 1. Rows: target, columns: source."


def test_every_kind_layer_and_head_can_be_shown(open_page):
    page = open_page(attention_page([ONE], "demo"))
    check_every_map(page, ONE)
    for number, text in enumerate(("Rows: target", "Rows: predicted", "Rows and columns: source")):
        choose(page, "kind", str(number))
        assert text in page.locator("caption").text_content()


def test_a_sentence_can_be_selected(open_page):
    page = open_page(attention_page([ONE, OTHER], "demo"))
    page.select_option("#sentence", label="wa ter")
    assert page.locator("#target").text_content() == "Wasser"
    check_map(page, OTHER.stacks["cross"].weights[1].mean(axis=0))
    choose(page, "kind", "2")
    check_map(page, OTHER.stacks["encoder"].weights[0].mean(axis=0))
    page.select_option("#sentence", label="my dog s")  # the kind stays selected
    check_map(page, ONE.stacks["encoder"].weights[0].mean(axis=0))


def test_clicking_a_small_map_opens_it(open_page):
    page = open_page(attention_page([ONE], "demo"))
    buttons = page.locator(".overview button")
    assert buttons.count() == 6
    page.get_by_role("button", name="layer 3, head 2").click()
    check_map(page, ONE.stacks["cross"].weights[2, 1])
    assert page.locator("[aria-pressed=true]").get_attribute("aria-label") == "layer 3, head 2"
    assert control(page, "layer").input_value() == "2"


def test_a_page_can_be_used_with_the_keyboard_only(open_page):
    page = open_page(attention_page([ONE], "demo"))
    keys = page.keyboard
    keys.press("Tab")
    assert control(page, "kind").evaluate("node => node === document.activeElement")
    keys.press("ArrowDown")  # decoder self-attention
    keys.press("Tab")
    keys.press("ArrowUp")  # layer 1
    keys.press("Tab")
    keys.press("End")  # head 2
    check_map(page, ONE.stacks["decoder"].weights[0, 1])
    assert page.get_by_role("status").text_content() == "decoder self-attention, layer 1, head 2"
    keys.press("Tab")  # the map scrolls
    assert page.evaluate("document.activeElement.getAttribute('role')") == "region"
    keys.press("Tab")
    keys.press("Enter")
    check_map(page, ONE.stacks["decoder"].weights[0, 0])


@pytest.mark.parametrize("width", [320, 1280])
def test_hostile_text_is_shown_as_text(open_page, width):
    page = open_page(attention_page([TEXT_OF_HOSTILE, ONE], "</title><b>"), width=width)
    assert page.title() == "Attention of </title><b>"
    labels = page.locator("table.attention tbody th").all_text_contents()
    assert labels[0] == HOSTILE[0]
    assert labels[2] == f"-{HOSTILE[2]}"
    assert page.locator("script:not([type])").count() == 3
    assert overflowing_elements(page) == []


@pytest.mark.parametrize("is_dark", [False, True])
def test_a_long_sentence_scrolls_on_a_phone(open_page, is_dark):
    pieces = [f"▁word{i}" for i in range(60)]
    sentence = make_sentence(pieces, pieces[:40])
    page = open_page(attention_page([sentence], "demo"), width=390, is_dark=is_dark)
    assert overflowing_elements(page) == []
    check_map(page, sentence.stacks["cross"].weights[1, 0])
    region = page.locator(".attention-view .scroll")
    assert region.evaluate("node => node.scrollWidth > node.clientWidth")
    label = page.locator("table.attention tbody th").first
    region.evaluate("node => { node.scrollLeft = 500; }")
    assert label.bounding_box()["x"] >= region.bounding_box()["x"] - 1  # labels stay visible


def test_a_page_states_that_it_requires_scripts(open_page):
    page = open_page(attention_page([ONE], "demo"), script=False)
    assert "requires JavaScript" in page.locator("noscript").text_content()


def test_the_number_of_weights_on_a_page_is_limited(monkeypatch):
    sentences = [ONE, OTHER]
    n_all = sum(stack.weights.size for s in sentences for stack in s.stacks.values())
    for limit, detail, n_weights in (
        (n_all, "heads", n_all),
        (n_all - 1, "layers", n_all // 2),
        (n_all // 2 - 1, "map", 3 * 4 + 2 * 3),
    ):
        monkeypatch.setattr(page_module, "MAX_WEIGHTS", limit)
        data = page_data(attention_page(sentences, "demo"))
        kinds = [kind for sentence in data for kind in sentence["kinds"]]
        assert {kind["detail"] for kind in kinds} == {detail}
        assert sum(len(decoded(kind)) for kind in kinds) == n_weights
        for sentence in data:
            sizes = [len(labels) for labels in sentence["labels"]]
            for kind in sentence["kinds"]:
                size = sizes[kind["rows"]] * sizes[kind["columns"]]
                assert len(decoded(kind)) == kind["nLayers"] * kind["nHeads"] * size


def test_runs_of_zeros_are_short():
    weights = np.zeros((3, 100))
    weights[1, 5:7] = 1.0
    text = encode_weights(weights)
    assert len(text) < 20
    assert decoded({"weights": text}) == "A" * 105 + "__" + "A" * 193
    assert encode_weights(weights[1, 3:9]) == "AA__AA"


@pytest.mark.parametrize(("limit", "title"), [(100, "mean of all heads"), (10, "layer 2, head 1")])
def test_a_page_with_fewer_weights_can_be_used(open_page, monkeypatch, limit, title):
    monkeypatch.setattr(page_module, "MAX_WEIGHTS", limit)
    page = open_page(attention_page([ONE], "demo"))
    assert title in page.locator("caption").text_content()
    assert "long, so this page shows only" in page.locator("p.note").text_content()
    expected = ONE.stacks["cross"].weights[1]
    check_map(page, expected.mean(axis=0) if limit == 100 else expected[0])


def test_a_picture_is_valid_xml_without_scripts():
    sentences = [TEXT_OF_HOSTILE, ONE]
    text = str(svg_picture([sentence.map() for sentence in sentences]))
    root = ElementTree.fromstring(text)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags == {"svg", "title", "rect", "g", "text"}
    labels = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert HOSTILE[0] in labels
    cells = [element for element in root.iter() if element.get("fill-opacity")]
    n_visible = sum((sentence.map().weights >= 0.004).sum() for sentence in sentences)
    assert len(cells) == n_visible
    most = max(float(element.get("fill-opacity")) for element in cells)
    assert most == pytest.approx(max(s.map().weights.max() for s in sentences), abs=1e-3)


def test_the_labels_of_a_picture_stay_inside_the_picture(open_page):
    long = make_sentence(["▁a very long piece", "▁東京都"], ["▁長い言葉", "▁Wwwwwwwww"])
    html = f"<!DOCTYPE html><body>{svg_picture([long.map(), ONE.map()])}"
    page = open_page(html)
    outside = page.evaluate(
        """() => {
          const area = document.querySelector("svg").getBoundingClientRect();
          return [...document.querySelectorAll("text")].filter(label => {
            const box = label.getBoundingClientRect();
            return box.left < area.left || box.right > area.right || box.top < area.top ||
              box.bottom > area.bottom;
          }).map(label => label.textContent);
        }"""
    )
    assert outside == []


def test_hostile_text_is_drawn_as_png():
    pytest.importorskip("matplotlib", reason="matplotlib draws PNG pictures")
    from mtcli.reporting.attention.picture import png_picture

    assert png_picture([TEXT_OF_HOSTILE.map(), ONE.map()]).startswith(b"\x89PNG")
