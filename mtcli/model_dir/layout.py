"""Names of the files and subdirectories in a model directory.

`mtcli.tokenizer` defines the names of the tokenizer files.
"""

CONFIG = "config.yaml"
WEIGHTS = "model.safetensors"
CARD = "README.md"
LOG = "log.jsonl"
REPORT = "report.html"
WORD_COUNTS = "word_counts.safetensors"  # counts in the training text, for `evaluate --analysis`
LOCK = ".lock"
CHECKPOINTS = "checkpoints"
INTERIM_CHECKPOINT = f"{CHECKPOINTS}/pause.safetensors"  # saved between validations
EXPORT = "ctranslate2"
TENSORBOARD = "tensorboard"
CACHE = "cache"  # prepared training data; removed when training is complete
