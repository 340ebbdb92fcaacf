import json
import sys

import pytest

from mtcli.errors import DataError
from mtcli.evaluation import bleu, evaluate
from processes import output_of

HYPOTHESES = ["Ein Mann schläft auf dem Sofa.", "Zwei Hunde spielen im Schnee.", "Das ist gut."]
REFERENCES = ["Ein Mann schläft auf der Couch.", "Zwei Hunde spielen im Schnee.", "Dies ist gut."]
OTHERS = ["Der Mann schläft auf dem Sofa.", "Hunde spielen draußen.", "Das ist gut!"]


@pytest.mark.parametrize("references", [[REFERENCES], [REFERENCES, OTHERS]])
def test_the_numbers_and_signatures_are_those_of_the_sacrebleu_command(tmp_path, references):
    paths = []
    for i, lines in enumerate([HYPOTHESES, *references]):
        paths.append(tmp_path / str(i))
        paths[-1].write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", *paths[1:], "-i", paths[0], "--confidence"]
    options = ["-m", "bleu", "chrf", "-w", "12", "--format", "json"]
    output = json.loads(output_of([*command, *options]))
    for ours, theirs in zip(evaluate(HYPOTHESES, references), output, strict=True):
        assert ours.metric == theirs["name"]
        assert round(ours.value, 12) == theirs["score"]
        assert ours.margin == pytest.approx(theirs["confidence_var"], abs=1e-4)
        assert ours.signature == theirs["signature"]


def test_a_perfect_translation_has_100_and_its_signature():
    score = bleu(REFERENCES, REFERENCES)
    assert score.value == pytest.approx(100)
    assert str(score).startswith("BLEU 100.00  [nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|")


def test_hardly_any_match_has_its_margin_too():
    """Some samples of the bootstrap have no match at all, others have."""
    hypotheses = [*["x y z w"] * 40, "Zwei Hunde spielen im Schnee."]
    references = [*["a b c d"] * 40, "Zwei Hunde spielen im Schnee."]
    for score in evaluate(hypotheses, [references]):
        assert score.margin > 0
        assert 0 < score.value < 50


def test_unequal_or_empty_files_are_refused():
    with pytest.raises(DataError, match="3 translations cannot be scored against 2 references"):
        evaluate(HYPOTHESES, [REFERENCES[:2]])
    with pytest.raises(DataError, match="nothing to score"):
        evaluate([], [[]])
