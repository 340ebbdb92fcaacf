import json
import re
import shutil
import sys
import zipfile
from pathlib import Path

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mtcli
from mtcli.errors import DataError
from mtcli.reporting.html_report import report_html
from mtcli.reporting.pages import (
    check_page_path,
    json_for_script,
    render_fragment,
    render_page,
    write_page,
)
from parsed_page import Page
from processes import output_of
from test_layers import imported_modules

ROOT = Path(mtcli.__file__).parent.parent
TEMPLATES = ROOT / "mtcli" / "reporting" / "templates"


def test_the_wheel_contains_the_templates(tmp_path):
    pytest.importorskip("setuptools", reason="setuptools builds the package")
    for name in ("mtcli", "configs", "pyproject.toml", "README.md"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(tmp_path)!r})"
    output_of([sys.executable, "-W", "ignore", "-c", build], cwd=tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    expected = {f"mtcli/reporting/templates/{path.name}" for path in TEMPLATES.iterdir()}
    assert len(expected) > 5
    assert expected <= names
    assert "mtcli/configs/demo.yaml" in names


def test_a_missing_variable_of_a_template_is_an_error():
    with pytest.raises(jinja2.UndefinedError):
        render_page("training.html.j2", {})


def test_templates_escape_text():
    values = {"chart": None, "values": None}
    with pytest.raises(jinja2.UndefinedError):
        render_fragment("chart.html.j2", values)
    page = report_html([{"event": "notice", "text": "<i>&amp;\"'"}], "", {})
    assert "<li>&lt;i&gt;&amp;amp;&#34;&#39;</li>" in page


texts = st.text(st.characters(exclude_categories=()), max_size=20)
hostile = st.sampled_from(["</script>", "<!--", "<script>", "]]>", "\u2028", "\ud800", "\x00"])
values = st.recursive(
    st.none() | st.integers() | st.booleans() | texts | hostile | st.floats(allow_nan=False),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(texts, items, max_size=3),
    max_leaves=8,
)


@given(values)
def test_script_data_is_valid_json_that_cannot_end_the_script(value):
    text = str(json_for_script(value))
    assert not re.search("[<>&\u2028\u2029\x00-\x1f\x7f-\x9f\ud800-\udfff]", text)
    assert json_for_script(json.loads(text)) == text


@given(texts)
def test_script_data_keeps_printable_text(text):
    expected = re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", text)
    assert json.loads(str(json_for_script([text]))) == [expected]


def test_the_policy_allows_only_the_scripts_of_the_page():
    page = Page(report_html([], "", {}))
    policy = next(a["content"] for a in page.attributes_of("meta") if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; ")
    assert re.search(r"script-src 'sha256-[^']+'; ", policy)


def test_writing_a_page_replaces_only_an_earlier_page(tmp_path):
    path = tmp_path / "deep" / "report.html"
    write_page(path, report_html([], "", {}))
    write_page(path, report_html([], "", {"name": "second"}))
    assert "second" in path.read_text()
    (tmp_path / "empty.html").touch()
    check_page_path(tmp_path / "empty.html")
    other = tmp_path / "thesis.html"
    other.write_text("<!DOCTYPE html><title>My thesis</title>")
    with pytest.raises(DataError, match=r"thesis.html already exists and is not an mtcli report"):
        write_page(other, report_html([], "", {}))
    assert "thesis" in other.read_text()


def test_a_link_to_a_page_is_kept(tmp_path):
    target, link = tmp_path / "target.html", tmp_path / "link.html"
    write_page(target, report_html([], "", {}))
    link.symlink_to(target)
    write_page(link, report_html([], "", {"name": "second"}))
    assert link.is_symlink()
    assert "second" in target.read_text()


@pytest.mark.parametrize("path", [Path("/dev/null"), Path("/")])
def test_special_files_are_not_replaced(path):
    with pytest.raises(DataError, match="it is not a regular file"):
        check_page_path(path)


def test_jinja2_is_imported_only_to_render_a_page():
    modules = imported_modules("import mtcli.reporting.html_report, mtcli.reporting.pages")
    assert not modules & {"jinja2", "markupsafe"}
