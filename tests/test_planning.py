import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcli.config.load import load_config
from mtcli.config.tokenizer import TokenizerConfig
from mtcli.config.transformers import TransformerConfig
from mtcli.data.corpus import Corpus
from mtcli.errors import ConfigError
from mtcli.hardware import Gpu, Hardware, _first_gpu, detect_hardware
from mtcli.models import build_model
from mtcli.planning.choices import choose
from mtcli.planning.corpus_stats import CorpusStats, SideStats, measure_corpus
from mtcli.planning.estimate import estimate
from mtcli.planning.model_sizes import SIZE_TIERS
from mtcli.planning.plan import (
    Plan,
    corpus_line,
    estimate_config,
    is_in_plan,
    make_plan,
    plan_lines,
    with_training_pairs,
)
from mtcli.tokenizer import train_tokenizers
from processes import output_of

DEMO = Path(__file__).parent.parent / "data" / "demo"
TRAIN = ("data.train", ("a.en", "a.de"))
HARDWARE = Hardware(cores=2, memory=24 * 10**9, gflops=250.0)
GPU = replace(HARDWARE, gpu=Gpu("a GPU", 24 * 10**9))
SIDE = SideStats(characters=61, words=12, probe_pieces=22, p99_characters=121)
STATS = CorpusStats(n_pairs=29_000, alphabet_size=95, source=SIDE, target=SIDE)
SINGLE_SETTINGS = [
    ("tokenizer.vocab_size", 32_000),
    ("tokenizer.is_shared", False),
    ("model.d_model", 2),
    ("model.d_model", 96),
    ("model.d_model", 194),
    ("model.d_model", 1024),
    ("model.n_heads", 1),
    ("model.n_heads", 5),
    ("model.n_heads", 48),
    ("model.d_feed_forward", 7),
    ("model.n_encoder_layers", 12),
    ("model.n_decoder_layers", 1),
    ("model.dropout", 0),
    ("model.norm", "post"),
    ("model.positions", "learned"),
    ("model.tied_embeddings", "none"),
    ("data.dev", ("b.en", "b.de")),
    ("data.dev_pairs", 7),
    ("data.max_length", 20),
    ("data.max_length", 1000),
    ("data.batch_tokens", 100),
    ("search.max_length", 50),
    ("search.max_length", 400),
    ("train.steps", 1),
    ("train.minutes", 0.1),
    ("train.minutes", 10_000),
    ("train.optimizer", "adamw"),
    ("train.accumulate", 4),
    ("train.device", "cpu"),
    ("train.validate_every", 1),
]

sides = st.builds(
    lambda words, word_length, pieces, longest: SideStats(
        characters=words * word_length,
        words=words,
        probe_pieces=words * min(pieces, word_length),
        p99_characters=round(longest * words * word_length) + 1,
    ),
    words=st.floats(0.5, 5_000),
    word_length=st.floats(1, 20),
    pieces=st.floats(0, 20),
    longest=st.floats(1, 10),
)
corpus_stats = st.builds(
    CorpusStats,
    n_pairs=st.integers(1, 10**8),
    alphabet_size=st.integers(1, 20_000),
    source=sides,
    target=sides,
)
hardware_options = st.builds(
    Hardware,
    cores=st.integers(1, 256),
    memory=st.integers(10**8, 10**12),
    gflops=st.floats(0.1, 10**5),
    gpu=st.none() | st.just(Gpu("a GPU", 8 * 10**9)),
)
budgets = st.none() | st.floats(0.01, 10**5)


def plan_with(stats: CorpusStats, hardware: Hardware, *fixed: tuple[str, object]) -> Plan:
    given_settings = dict([TRAIN, *fixed])
    choices = choose(stats, hardware, given_settings)
    chosen = [(choice.key, choice.value) for choice in choices]
    config = load_config(None, [*chosen, *given_settings.items()])
    return Plan(choices, config, estimate(config, stats, hardware), stats, hardware)


def sizes(plan: Plan) -> tuple[int, ...]:
    model = plan.config.model
    layers = (model.n_encoder_layers, model.n_decoder_layers)
    return (plan.config.tokenizer.vocab_size, model.d_model, *layers, plan.estimate.n_parameters)


def is_at_most(small: Plan, large: Plan) -> bool:
    return all(a <= b for a, b in zip(sizes(small), sizes(large), strict=True))


@pytest.fixture(scope="module")
def demo():
    texts = [(DEMO / name).read_text(encoding="utf-8") for name in ("train.en", "train.de")]
    return Corpus(*[text.splitlines() for text in texts])


@pytest.mark.parametrize("setting", [None, *SINGLE_SETTINGS], ids=str)
@given(stats=corpus_stats, hardware=hardware_options, minutes=budgets)
@settings(max_examples=20, deadline=None)
def test_every_plan_is_a_valid_config_that_keeps_the_user_settings(
    stats, hardware, minutes, setting
):
    fixed = dict([("train.minutes", minutes)] if minutes else [])
    fixed.update([setting] if setting else [])
    plan = plan_with(stats, hardware, *fixed.items())
    assert not {choice.key for choice in plan.choices} & fixed.keys()
    written = plan.config.model_dump(mode="json")
    for key, value in fixed.items():
        section, _, name = key.partition(".")
        expected = list(value) if isinstance(value, tuple) else value
        assert written[section][name] == expected
    assert plan.estimate.seconds > 0
    assert plan.estimate.memory > 0
    assert plan.config.model.d_model // plan.config.model.n_heads >= 1


@given(corpus_stats, hardware_options, budgets)
@settings(max_examples=50, deadline=None)
def test_the_plan_lines_contain_every_choice_with_its_value_and_reason(stats, hardware, minutes):
    plan = plan_with(stats, hardware, *([("train.minutes", minutes)] if minutes else []))
    text_lines = plan_lines(plan)
    for choice in plan.choices:
        assert any(
            line.split()[0] == choice.key and f"{choice.value}  {choice.reason}" in line
            for line in text_lines
        )
    assert f"{plan.estimate.n_parameters:,} parameters" in "\n".join(text_lines)
    assert "--set" in text_lines[-1]


def test_fewer_training_pairs_mean_more_epochs_but_not_other_settings():
    plan = plan_with(STATS, HARDWARE)
    half = with_training_pairs(plan, STATS.n_pairs // 2)
    assert half.config == plan.config
    assert half.estimate.epochs == pytest.approx(2 * plan.estimate.epochs)
    assert "training 14,500 pairs after filtering, without dev pairs" in plan_lines(half)
    assert corpus_line(half) == corpus_line(plan)


def test_the_corpus_line_of_an_earlier_version_is_recognized():
    line = corpus_line(plan_with(STATS, HARDWARE))
    assert "29,000 pairs before filtering; a line has " in line
    earlier = line.replace(" before filtering", "")
    assert is_in_plan(line, ["other", line])
    assert is_in_plan(line, ["other", earlier])
    assert not is_in_plan(line, [earlier.replace("29,000", "29,001")])


def test_plan_lines_fit_in_100_columns():
    for tier in SIZE_TIERS:
        for hardware in (HARDWARE, GPU):
            for fixed in ([], [("train.minutes", 30)], [("tokenizer.is_shared", False)]):
                plan = plan_with(replace(STATS, n_pairs=tier.min_pairs + 10), hardware, *fixed)
                assert max(map(len, plan_lines(plan))) <= 100


@given(corpus_stats, hardware_options, budgets, st.integers(1, 10**8))
@settings(max_examples=50, deadline=None)
def test_a_larger_corpus_never_gets_a_smaller_model(stats, hardware, minutes, n_pairs):
    fixed = [("train.minutes", minutes)] if minutes else []
    small, large = sorted((stats.n_pairs, n_pairs))
    plans = [plan_with(replace(stats, n_pairs=n), hardware, *fixed) for n in (small, large)]
    assert is_at_most(*plans)


@given(corpus_stats, hardware_options, st.floats(0.01, 10**5), st.floats(0.01, 10**5))
@settings(max_examples=50, deadline=None)
def test_a_larger_budget_never_gets_a_smaller_model(stats, hardware, one, other):
    small, large = sorted((one, other))
    plans = [plan_with(stats, hardware, ("train.minutes", minutes)) for minutes in (small, large)]
    assert is_at_most(*plans)


def test_a_larger_budget_gets_a_larger_model():
    """Always choosing the same size would satisfy the tests above, but not this one."""
    stats = replace(STATS, n_pairs=5_000_000)
    widths = [
        plan_with(stats, HARDWARE, ("train.minutes", minutes)).config.model.d_model
        for minutes in (1, 10, 100, 10_000)
    ]
    assert widths == sorted(set(widths))


def test_sizes_follow_published_recipes():
    multi30k = plan_with(STATS, HARDWARE)
    assert 2_000 <= multi30k.config.tokenizer.vocab_size <= 4_000
    assert 2e6 <= multi30k.estimate.n_parameters <= 5e6
    assert 0.2 <= multi30k.config.model.dropout <= 0.3
    wmt = plan_with(replace(STATS, n_pairs=4_500_000), GPU)
    model = wmt.config.model
    assert wmt.config.tokenizer.vocab_size == 32_000
    assert (model.d_model, model.n_heads, model.d_feed_forward) == (512, 8, 2048)
    assert (model.n_encoder_layers, model.n_decoder_layers, model.dropout) == (6, 6, 0.1)


@pytest.mark.parametrize("n_pairs", [tier.min_pairs + 1 for tier in SIZE_TIERS])
def test_without_a_budget_a_cpu_trains_for_about_two_hours_at_most(n_pairs):
    plan = plan_with(replace(STATS, n_pairs=n_pairs), HARDWARE)
    assert plan.estimate.seconds < 1.1 * 2 * 3600


def test_only_the_number_of_steps_depends_on_the_measured_speed():
    stats, slow = replace(STATS, n_pairs=1_000_000), replace(HARDWARE, gflops=20.0)
    one, other = [plan_with(stats, hardware).config.model_dump() for hardware in (HARDWARE, slow)]
    assert one["train"].pop("steps") > other["train"].pop("steps")
    for plan in (one, other):
        del plan["train"]["warmup"], plan["train"]["validate_every"]  # derived from the steps
    assert one == other


@pytest.mark.parametrize(("width", "n_heads"), [(96, 3), (192, 6), (256, 8), (512, 8), (194, 2)])
def test_a_fixed_width_determines_heads_and_feed_forward(width, n_heads):
    model = plan_with(STATS, HARDWARE, ("model.d_model", width)).config.model
    assert (model.d_model, model.n_heads, model.d_feed_forward) == (width, n_heads, 4 * width)


@pytest.mark.parametrize(
    "settings",
    [
        [("model.n_kv_heads", 4), ("model.d_model", 96)],
        [("model.positions", "rotary"), ("model.d_model", 66)],
        [("model.positions", "rotary"), ("model.d_model", 2 * 3 * 5 * 7)],
    ],
)
def test_the_chosen_heads_are_valid_with_the_user_settings(settings):
    plan_with(STATS, HARDWARE, *settings)  # an invalid combination would raise ConfigError


def test_fixed_heads_determine_the_width():
    model = plan_with(STATS, HARDWARE, ("model.n_heads", 5)).config.model
    assert (model.d_model, model.n_heads) == (190, 5)


PARENT = ("train.start_from", "runs/parent")


def rates(*fixed) -> dict[str, float]:
    choices = plan_with(STATS, HARDWARE, *fixed).choices
    return {choice.key: choice.value for choice in choices if choice.key.endswith("rate")}


def test_a_transformer_gets_positions_that_depend_on_distance():
    for hardware, positions in ((HARDWARE, "relative"), (GPU, "rotary")):
        model = plan_with(STATS, hardware).config.model
        assert (model.positions, model.norm_kind, model.biases) == (positions, "rms", False)
    odd = plan_with(STATS, GPU, ("model.d_model", 30), ("model.n_heads", 2)).config.model
    assert odd.positions == "relative"
    fixed = plan_with(STATS, HARDWARE, ("model.positions", "alibi")).config.model
    assert fixed.positions == "alibi"


def test_fine_tuning_reduces_the_learning_rates_and_gives_the_reason():
    usual = load_config(None, [TRAIN]).train
    plan = plan_with(STATS, HARDWARE, PARENT)
    assert plan.config.train.learning_rate < usual.learning_rate
    assert plan.config.train.matrix_learning_rate < usual.matrix_learning_rate
    text_lines = plan_lines(plan)
    for key in ("train.learning_rate", "train.matrix_learning_rate"):
        [line] = [line for line in text_lines if line.split()[0] == key]
        assert line.endswith("reduced for fine-tuning, to limit forgetting")
    assert max(map(len, text_lines)) <= 100
    assert rates() == {}


def test_the_planner_chooses_no_learning_rate_that_is_fixed_or_unused():
    assert rates(PARENT, ("train.learning_rate", 7e-3)).keys() == {"train.matrix_learning_rate"}
    assert rates(PARENT, ("train.optimizer", "adamw")).keys() == {"train.learning_rate"}
    wide = [("model.d_model", 512), ("tokenizer.vocab_size", 32_000)]
    assert rates(PARENT, *wide)["train.learning_rate"] < rates(*wide)["train.learning_rate"]


def test_no_pairs_are_held_out_if_there_are_dev_files():
    def keys(*fixed):
        return {choice.key for choice in plan_with(STATS, HARDWARE, *fixed).choices}

    assert "data.dev_pairs" in keys()
    assert "data.dev_pairs" not in keys(("data.dev", ("b.en", "b.de")))


def test_a_large_alphabet_gets_a_vocabulary_that_contains_it():
    plan = plan_with(replace(STATS, alphabet_size=6_000), HARDWARE)
    assert plan.config.tokenizer.vocab_size > 12_000


def test_batches_that_do_not_fit_in_memory_are_split_and_accumulated():
    stats = replace(STATS, n_pairs=5_000_000)
    wide = plan_with(stats, GPU).config
    narrow = plan_with(stats, replace(GPU, gpu=Gpu("small", 6 * 10**9)))
    assert narrow.config.data.batch_tokens < wide.data.batch_tokens
    assert narrow.estimate.memory < 6 * 10**9
    total = [c.data.batch_tokens * c.train.accumulate for c in (wide, narrow.config)]
    assert total[0] == total[1]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("model.d_model", "wide"), "model.d_model: must be an integer"),
        (("model.d_model", 7), "model.d_model: must be a multiple of 2"),
        (("model.n_heads", -1), "model.n_heads: must be greater than 0"),
        (("train.minutes", "all"), "train.minutes: must be a number"),
        (("search.max_length", None), "search.max_length: must be an integer"),
        (("train.step", 5), "train.step: unknown key; did you mean train.steps?"),
    ],
)
def test_planning_reports_an_invalid_setting(setting, message):
    with pytest.raises(ConfigError) as error:
        plan_with(STATS, HARDWARE, setting)
    assert message in str(error.value)


@pytest.mark.parametrize("tied", ["all", "target", "none"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("shape", [(1, 1, 8, 2, 12), (3, 2, 16, 4, 64), (2, 4, 6, 1, 5)])
def test_the_predicted_parameter_count_equals_that_of_the_model(tied, norm, positions, shape):
    n_encoder_layers, n_decoder_layers, d_model, n_heads, d_feed_forward = shape
    config = TransformerConfig(
        n_encoder_layers=n_encoder_layers,
        n_decoder_layers=n_decoder_layers,
        d_model=d_model,
        n_heads=n_heads,
        d_feed_forward=d_feed_forward,
        tied_embeddings=tied,
        norm=norm,
        positions=positions,
        max_positions=33,
    )
    target_size = 20 if tied == "all" else 31
    model = build_model(config, 20, target_size)
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    assert config.n_parameters(20, target_size) == n_parameters


def test_the_estimated_time_is_proportional_to_the_steps_or_equals_the_budget():
    def expected(*fixed):
        return plan_with(STATS, HARDWARE, ("train.validate_every", 500), *fixed).estimate

    one, ten = expected(("train.steps", 1_000)), expected(("train.steps", 10_000))
    assert ten.seconds == pytest.approx(10 * one.seconds)
    assert ten.epochs == pytest.approx(10 * one.epochs)
    assert expected(("train.minutes", 7)).seconds == 7 * 60


def test_the_estimated_time_includes_every_validation():
    def seconds(interval):
        settings = ("train.steps", 1_000), ("train.validate_every", interval)
        return plan_with(STATS, HARDWARE, *settings).estimate.seconds

    once, twice, often = (seconds(interval) for interval in (1_000, 500, 100))
    assert twice - once > 0
    assert often - once == pytest.approx(9 * (twice - once))
    assert seconds(999) == twice  # there is always a validation after the last step


def test_faster_cores_and_more_cores_reduce_the_time():
    def seconds(hardware):
        return plan_with(STATS, hardware, ("train.steps", 1_000)).estimate.seconds

    assert seconds(replace(HARDWARE, gflops=500.0)) == pytest.approx(seconds(HARDWARE) / 2)
    four_cores = replace(HARDWARE, cores=4, gflops=500.0)
    assert seconds(HARDWARE) / 2 < seconds(four_cores) < seconds(HARDWARE)


def test_predicting_the_source_slows_down_training():
    language_model = ("model.arch", "decoder_only"), ("model.source_attention", "causal")

    def speed(side):
        settings = (*language_model, ("model.loss_on", side))
        return plan_with(STATS, HARDWARE, *settings).estimate.tokens_per_second

    assert speed("both") < speed("target")


def test_estimated_pieces_are_close_to_those_of_a_tokenizer(demo):
    half = Corpus(demo.source[:5_000], demo.target[:5_000])
    stats = measure_corpus(half)
    for vocab_size in (1_000, 2_000, 4_000):
        options = TokenizerConfig(kind="bpe", vocab_size=vocab_size)
        tokenizer = train_tokenizers(half.source, half.target, options).source
        for estimated, side in zip(
            stats.estimate_pieces(vocab_size), (half.source, half.target), strict=True
        ):
            n_pieces = sum(len(ids) for ids in tokenizer.encode(side))
            assert estimated == pytest.approx(n_pieces / len(half), rel=0.25)


def test_the_number_of_words_in_a_script_without_spaces_is_estimated():
    chinese = ["他们昨天在图书馆里看了一本很有意思的书。", "我不知道他为什么没有来参加会议。"] * 50
    stats = measure_corpus(Corpus(chinese, ["They read a very interesting book."] * 100))
    assert 5 < stats.source.words < stats.source.characters
    assert stats.source.estimate_pieces(100_000) >= 5


def test_periodic_line_lengths_do_not_bias_the_sample():
    turns = ["word " * (1 if i % 20 == 0 else 21) for i in range(40_000)]
    stats = measure_corpus(Corpus(turns, turns))
    assert stats.source.words == pytest.approx(20, rel=0.05)


@pytest.mark.parametrize("n_pairs", [1, 2, 10])
def test_a_tiny_corpus_gets_a_plan_and_a_vocabulary(demo, n_pairs):
    corpus = Corpus(demo.source[:n_pairs], demo.target[:n_pairs])
    plan = make_plan(measure_corpus(corpus), [TRAIN], HARDWARE)
    assert plan.stats.n_pairs == n_pairs
    train_tokenizers(corpus.source, corpus.target, plan.config.tokenizer)


def test_planning_is_deterministic(demo):
    assert make_plan(measure_corpus(demo), [TRAIN], HARDWARE) == make_plan(
        measure_corpus(demo), [TRAIN], HARDWARE
    )


def test_keys_missing_from_a_section_are_still_chosen(demo):
    plan = make_plan(measure_corpus(demo), [TRAIN, ("model", {"d_model": 64})], HARDWARE)
    assert plan.config.model.d_model == 64
    assert plan.config.model.d_feed_forward == 256


def test_a_later_config_section_replaces_earlier_settings(demo):
    settings = [TRAIN, ("model.n_heads", 2), ("model", {"arch": "rnn", "d_model": 64})]
    plan = make_plan(measure_corpus(demo), settings, HARDWARE)
    assert plan.config.model.arch == "rnn"
    assert plan.config.model.d_model == 64


@pytest.mark.parametrize("arch", ["transformer", "decoder_only", "rnn"])
def test_every_architecture_gets_a_plan(demo, arch):
    plan = make_plan(measure_corpus(demo), [TRAIN, ("model.arch", arch)], HARDWARE)
    assert plan.config.model.arch == arch
    assert {choice.key for choice in plan.choices} >= {"model.d_model", "tokenizer.vocab_size"}


def test_a_complete_config_gets_the_same_estimate_and_no_automatic_choices(demo):
    plan = make_plan(measure_corpus(demo), [TRAIN], HARDWARE)
    again = estimate_config(measure_corpus(demo), plan.config, HARDWARE)
    assert again == replace(plan, choices=())
    assert "--set" not in "\n".join(plan_lines(again))


def test_planning_for_a_cpu_ignores_the_gpu(demo):
    assert make_plan(measure_corpus(demo), [TRAIN], GPU).hardware.gpu
    assert (
        make_plan(measure_corpus(demo), [TRAIN, ("train.device", "cpu")], GPU).hardware.gpu is None
    )


class CountingList(list):
    """List that counts how many of its items are read."""

    n_read = 0

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.n_read += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self):
        for item in super().__iter__():
            self.n_read += 1
            yield item


def test_a_large_corpus_is_sampled(demo):
    many = Corpus(CountingList(demo.source * 100), CountingList(demo.target * 100))
    assert measure_corpus(many).n_pairs == 2_000_000
    assert 0 < many.source.n_read < 100_000
    assert 0 < many.target.n_read < 100_000


def test_detected_hardware_is_plausible():
    hardware = detect_hardware()
    assert hardware.cores >= 1
    assert hardware.memory > 10**8
    assert hardware.gflops > 0.1


def test_the_output_of_nvidia_smi_is_parsed_or_ignored():
    found = _first_gpu("NVIDIA A100-SXM4-40GB, 40960\nNVIDIA A100-SXM4-40GB, 40960\n")
    assert found == Gpu("NVIDIA A100-SXM4-40GB", 40960 * 2**20)
    assert _first_gpu("No devices were found\n") is None
    assert _first_gpu("") is None


def test_planning_does_not_import_torch():
    code = "import sys, mtcli.planning.resolve; assert 'torch' not in sys.modules"
    output_of([sys.executable, "-c", code])


def test_the_plan_warns_if_the_model_does_not_fit_in_memory():
    plan = plan_with(STATS, HARDWARE, ("model.d_model", 20_000), ("model.n_heads", 8))
    assert any("reduce model.d_model or the number of layers" in line for line in plan_lines(plan))
