"""Makes a small tokenizer, and the text that the replay server streams as this tokenizer would cut it.

Peers that count with a tokenizer get the one that the "model" has, which is the best that can happen to them. The text is
Python's own standard library.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = Path(sys.argv[1])
N_PIECES, VOCABULARY = 5000, 2000
library = sorted(Path(json.__file__).parents[1].glob("*.py"))[:60]
text = "".join(ascii_only for path in library if (ascii_only := path.read_text(errors="ignore")).isascii())

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
alphabet = pre_tokenizers.ByteLevel.alphabet()
tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False))

FOLDER.mkdir(parents=True, exist_ok=True)
tokenizer.save(str(FOLDER / "tokenizer.json"))
(FOLDER / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1 << 20}))
ids = tokenizer.encode(text).ids
(FOLDER / "pieces.json").write_text(json.dumps([tokenizer.decode([i]) for i in ids[:N_PIECES]]))
(FOLDER / "book.txt").write_text(text[:400_000])
