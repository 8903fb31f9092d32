"""The classes of damage to a checkpoint, and which of them nothing can tell without a manifest."""

import math
from dataclasses import dataclass

from . import damaged_settings as settings
from . import damaged_weights as weights
from .damaged_weights import Mutate


@dataclass(frozen=True)
class MutantClass:
    """One kind of damage.

    silent: why nothing can tell without a manifest; empty: it must be refused or warned of in every layout. harmless: some mutants
    change nothing that the program reads, so that a checkpoint that gives the same logits and prompts may load.
    """

    mutate: Mutate
    silent: str = ""
    harmless: bool = False


FINITE = "a flipped bit gives another finite number"
POSSIBLE = "a model may have it"
CLASSES: dict[str, MutantClass] = {
    "bit of a weight": MutantClass(weights.flip(weights.is_weight), FINITE),
    "bit of a scale": MutantClass(weights.flip(weights.is_scale), "an exponent's bit gives another power of two"),
    "bit of the indexer": MutantClass(weights.flip(lambda n, entry: "indexer" in n and weights.is_weight(n, entry)), FINITE),
    "bit of an embedding": MutantClass(weights.flip(lambda name, entry: "embed" in name or "lm_head" in name), FINITE),
    "truncated": MutantClass(weights.truncate),
    "longer": MutantClass(weights.lengthen),
    "header length": MutantClass(weights.header_length),
    "offsets": MutantClass(weights.edit_header(weights.move)),
    "header byte": MutantClass(weights.header_noise, harmless=True),
    "missing file": MutantClass(weights.missing_file),
    "missing tensor": MutantClass(weights.edit_header(lambda rng, header, name: header.pop(name))),
    "renamed tensor": MutantClass(weights.edit_header(weights.rename)),
    "extra tensor": MutantClass(weights.edit_header(weights.extra_tensor)),
    "swapped tensors": MutantClass(weights.swap_headers, "both tensors have the shape and dtype that their names ask for"),
    "dtype": MutantClass(weights.edit_header(weights.other_dtype)),
    "shape": MutantClass(weights.edit_header(weights.other_shape)),
    "NaN": MutantClass(weights.put([math.nan, -math.nan], lambda name, entry: True)),
    "infinity": MutantClass(weights.put([math.inf, -math.inf], lambda name, entry: entry["dtype"] != "F8_E4M3")),
    "NaN in the indexer": MutantClass(weights.put([math.nan, math.inf], lambda name, entry: "indexer" in name)),
    "scale of 0 or less": MutantClass(weights.put([0.0, -0.0, -0.5, -1e-3], weights.is_scale)),
    "scale that is no power of two": MutantClass(weights.scale_by_no_power),
    "configuration of a wrong type or size": MutantClass(settings.wrong_config),
    "another number in the configuration": MutantClass(settings.edit_json("config.json", settings.OTHER_NUMBERS), POSSIBLE),
    "fewer layers": MutantClass(settings.fewer_layers),
    "tokenizer settings": MutantClass(settings.edit_json("tokenizer_config.json", settings.TOKENIZER_TYPES)),
    "vocabulary": MutantClass(settings.edit_json("tokenizer.json", settings.VOCABULARY_TYPES)),
    "generation settings": MutantClass(settings.edit_json("generation_config.json", settings.GENERATION_TYPES)),
    "index": MutantClass(settings.wrong_index, harmless=True),
    "manifest": MutantClass(settings.wrong_manifest, harmless=True),
    "hash in the manifest": MutantClass(settings.wrong_hash),
    "link or directory": MutantClass(settings.no_file),
    "Git LFS pointer": MutantClass(settings.lfs_pointer),
    "garbage": MutantClass(settings.garbage),
}  # fmt: skip
