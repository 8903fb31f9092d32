"""Routed experts that stay in the checkpoint's files: slots in the device's memory, filled when a token has chosen an expert.

A step asks for the experts that its tokens chose, layer by layer. Those in slots are multiplied with at once, while the others are
read; these follow in groups, each launch writing only its experts' rows. Which slot holds an expert, and in how many launches a
step is computed, changes no bit: see `grouped_gemm`. The least recently used expert makes room. Experts of a step with many
tokens, which needs nearly all of them, make room for each other, so that most experts of running answers stay.

Slots hold weights as they are stored. If the model multiplies in another dtype, an expert is converted at its use.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch

from .moe import ExpertWeights, Parts

GROUP = 8  # experts of a launch, of those that have to be read
LASTING_TOKENS = 64  # the experts of a step with more tokens are the first ones to make room

Key = tuple[int, int]  # layer, and number among the layer's experts on this rank


class Slot(NamedTuple):
    """The place of one part of one expert."""

    weight: torch.Tensor  # [N, K]
    scale: torch.Tensor | None  # fp32, of an FP8 weight


class Read(Protocol):
    """The methods of a `concurrent.futures.Future[None]` that slots use."""

    def done(self) -> bool: ...
    def cancel(self) -> bool: ...
    def exception(self) -> BaseException | None: ...


class ExpertReader(Protocol):
    """Reads parts of experts, with threads of its own (checkpoint/expert_files.py)."""

    def read(self, part: str, key: Key, slot: Slot, after: "torch.cuda.Event | None") -> list[Read]:
        """Begin to fill `slot`, once the device has passed `after`. When all reads have ended, it is filled."""

    def convert(self, part: str, key: Key, slot: Slot, into: Slot) -> None:
        """Convert the contents of a slot to the dtype of `into`, as loading does."""


class PartShape(NamedTuple):
    """The shape of a part of every expert, as it is stored and as the model multiplies with it."""

    weight: tuple[int, int]
    scale: tuple[int, int]
    stored: torch.dtype
    used: torch.dtype

    def stacked(self, count: int, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Allocate weights of `count` experts, and their scales if they are in FP8."""
        quantized = dtype == torch.float8_e4m3fn
        weight = torch.empty(count, *self.weight, dtype=dtype, device=device)
        return weight, torch.empty(count, *self.scale, dtype=torch.float32, device=device) if quantized else None

    @property
    def slot_bytes(self) -> int:
        scales = 4 * self.scale[0] * self.scale[1] if self.stored == torch.float8_e4m3fn else 0
        return self.weight[0] * self.weight[1] * self.stored.itemsize + scales


class _Slots:
    """The slots of one part, "gate_up_proj" or "down_proj", for the experts of all layers."""

    def __init__(self, part: str, shape: PartShape, reader: ExpertReader, device: torch.device, count: int) -> None:
        self._part, self._reader, self._device = part, reader, device
        self._stacked = weight, scale = shape.stacked(count, shape.stored, device)
        self._slots = [Slot(weight[slot], None if scale is None else scale[slot]) for slot in range(count)]
        self._converted = None if shape.stored == shape.used else shape.stacked(1, shape.used, device)
        # The slots of experts that have been read or are being read, in the order in which they make room.
        self.held: OrderedDict[Key, int] = OrderedDict()
        self.pinned: set[Key] = set()  # experts that the present step uses later, or the next layer
        self._lasting: set[Key] = set()  # experts that steps with few tokens used
        self.reads = 0
        self._free = list(reversed(range(count)))
        self._reads: list[list[Read]] = [[] for _ in range(count)]
        self._last_use: list[torch.cuda.Event | None] = [None] * count

    def find(self, keys: Sequence[Key], lasting: bool) -> set[Key]:
        """Return the experts that are held, and pin only them. An expert that could not be read is not held."""
        for key in keys:
            if key in self.held and any(read.done() and read.exception() for read in self._reads[self.held[key]]):
                self._drop(key)
        found = [key for key in keys if key in self.held]
        if lasting:
            self._lasting.update(found)
            for key in found:
                self.held.move_to_end(key)
        self.pinned = set(found)
        return set(found)

    def request(self, key: Key, lasting: bool) -> bool:
        """Begin to read an expert and pin it. False: there is no slot for it now."""
        if not self._free:
            passing = len(self.held) - len(self._lasting)  # experts of long steps, which have a quarter of the slots
            any_goes = lasting or not self.pinned or passing < len(self._reads) // 4
            unused = (each for each in self.held if each not in self.pinned)
            victim = next((each for each in unused if any_goes or each not in self._lasting), None)
            if victim is None:
                return False
            self._drop(victim)
        slot = self._free[-1]
        for read in self._reads[slot]:  # of a step that failed: it may still write
            if not read.cancel():
                read.exception()
        self._reads[slot] = self._reader.read(self._part, key, self._slots[slot], self._last_use[slot])
        self.held[key] = self._free.pop()  # not earlier: after an exception the slot is free
        self.held.move_to_end(key, last=lasting)
        if lasting:
            self._lasting.add(key)
        self.pinned.add(key)
        self.reads += 1
        return True

    def is_read(self, key: Key) -> bool:
        return all(read.done() for read in self._reads[self.held[key]])

    def use(self, keys: Collection[Key], experts: int) -> Iterator[ExpertWeights]:
        """Yield the weights of these experts for one launch; one by one if they must be converted. Then they are no longer pinned.

        Waits until they have been read. Raises what reading one of them raised; it is not held then.
        """
        places = {key: self.held[key] for key in keys}
        table = self.table({expert: slot for (_, expert), slot in places.items()}, experts)
        for key, slot in places.items():
            for read in self._reads[slot]:
                if (error := read.exception()) is not None:
                    self._drop(key)
                    raise error
            self._reads[slot] = []
        if self._converted is None:
            yield ExpertWeights(*self._stacked, table)
        else:
            weight, scale = self._converted
            place = Slot(weight[0], None if scale is None else scale[0])
            for key in keys:
                self._reader.convert(self._part, key, self._slots[places[key]], place)
                yield ExpertWeights(weight, scale, self.table({key[1]: 0}, experts))
        if self._device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            for slot in places.values():
                self._last_use[slot] = event
        self.pinned.difference_update(keys)

    def _drop(self, key: Key) -> None:
        self._free.append(self.held.pop(key))
        self._lasting.discard(key)

    def any_weights(self, slots: torch.Tensor) -> ExpertWeights:
        """Weights of no expert, for launches whose results are not used."""
        return ExpertWeights(*(self._converted or self._stacked), slots)

    def table(self, slots: dict[int, int], experts: int) -> torch.Tensor:
        """Make `ExpertWeights.slots`. No copy to the device, which would wait for those of the reader or hold them up."""
        table = torch.full((experts,), -1, dtype=torch.int32, device=self._device)
        for expert, slot in slots.items():
            table[expert].fill_(slot)
        return table


class ExpertSlots:
    """The slots of one rank's experts, of all layers. `allocate` comes before the first step."""

    def __init__(
        self,
        shapes: dict[str, PartShape],
        reader: ExpertReader,
        layers: Sequence[int],
        experts: int,
        device: torch.device,
    ) -> None:
        """layers: the numbers of the layers with experts, in the order of a step. experts: of one layer."""
        self._shapes, self._reader, self.layers, self._experts, self.device = shapes, reader, layers, experts, device
        self._parts: dict[str, _Slots] = {}
        # What to request, layer by layer: the experts of each part, in the order in which they are needed.
        self._wanted: list[dict[str, deque[Key]]] = []
        self._lasting = True  # of the present step
        self._measuring = False
        self.count = 0  # of slots
        self.used = 0  # experts, once for each step and layer

    @property
    def slot_bytes(self) -> int:
        return sum(shape.slot_bytes for shape in self._shapes.values())

    @property
    def most(self) -> int:
        """The number of slots that hold every expert."""
        return len(self.layers) * self._experts

    @property
    def read(self) -> float:
        """Experts that have been read; a part of one counts as half."""
        return sum(slots.reads for slots in self._parts.values()) / 2

    def allocate(self, count: int) -> None:
        """Make `count` slots, all empty, instead of those that there are."""
        self._parts.clear()
        for part, shape in self._shapes.items():
            self._parts[part] = _Slots(part, shape, self._reader, self.device, count)
        self.count = count

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """In the block, steps read no experts and multiply with any weights: they only measure memory."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def begin(self, tokens: int) -> None:
        """Begin to read the first layer's experts at the start of a step, if it has many tokens."""
        self._lasting = tokens <= LASTING_TOKENS
        if self._lasting or self._measuring:
            return
        self._wanted = [self._all_of_layer(0)]
        for part, slots in self._parts.items():
            slots.find(list(self._wanted[0][part]), lasting=False)
        self._advance()

    def request(self, layer: int, offsets: torch.Tensor, tokens: int) -> Parts:
        """`ExpertStore` of one layer. Waits until the device has the router's choice."""
        if self._measuring:
            anywhere = torch.zeros(len(offsets) - 1, dtype=torch.int32, device=self.device)
            return lambda part: (self._parts[part].any_weights(anywhere),)
        if offsets.is_cuda:  # a copy to the host that waits for the device stops the reader's copies meanwhile
            torch.cuda.current_stream(offsets.device).synchronize()
        bounds = offsets.tolist()
        keys = [(layer, expert) for expert in range(len(bounds) - 1) if bounds[expert] < bounds[expert + 1]]
        self._lasting = tokens <= LASTING_TOKENS
        found = {part: slots.find(keys, self._lasting) for part, slots in self._parts.items()}
        self.used += len(keys)
        self._wanted = [{part: deque(key for key in keys if key not in found[part]) for part in self._parts}]
        if not self._lasting:
            self._wanted.append(self._all_of_layer(self.layers.index(layer) + 1))
        self._advance()
        return lambda part: self._launches(self._parts[part], keys, found[part], len(bounds) - 1)

    def _launches(self, slots: _Slots, keys: list[Key], found: set[Key], experts: int) -> Iterator[ExpertWeights]:
        """Yield the step's experts: first those that have been read, then groups of the others, in the order of their requests."""
        if not keys:
            yield slots.any_weights(slots.table({}, experts))
        ready = [key for key in keys if key in found and slots.is_read(key)]
        most = max(GROUP, self.count // 8)  # of a launch: the slots of the first ones can soon be filled again
        for first in range(0, len(ready), most):
            yield from slots.use(ready[first : first + most], experts)
            self._advance()
        left = deque(sorted(set(keys).difference(ready), key=lambda key: (key not in found, key)))
        while left:
            self._advance()
            group = [left.popleft()]
            while left and len(group) < min(GROUP, self.count // 2) and left[0] in slots.held:
                group.append(left.popleft())
            yield from slots.use(group, experts)

    def _advance(self) -> None:
        """Request what is wanted, as far as there are slots; of the next layer, once all of this one has been requested."""
        for wanted in self._wanted:
            for part, keys in wanted.items():
                slots = self._parts[part]
                while keys and (keys[0] in slots.held or slots.request(keys[0], self._lasting)):
                    keys.popleft()
            if any(wanted.values()):
                return

    def _all_of_layer(self, index: int) -> dict[str, deque[Key]]:
        """All experts of a layer, of which a step with many tokens needs nearly all; none if there is no such layer."""
        keys = [(layer, expert) for layer in self.layers[index : index + 1] for expert in range(self._experts)]
        return {part: deque(keys) for part in self._parts}
