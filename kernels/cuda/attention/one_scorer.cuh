// The attention core for the parts of FP8 decode: group 0 scores every block and adds the left half of its values, group 1 adds the right half.
//
//   group 0:  Q K0 | softmax 0 | P0 V0 left  | Q K1          | softmax 1 | P1 V1 left  ...
//   group 1:                   | P0 V0 right |                           | P1 V1 right ...
//
// A part of few blocks spends its time on latencies, among them the latencies of instructions that no cache holds. The seesaw has the code of each
// step twice, with a softmax in each group; this has it once, in a loop over blocks. It adds the same numbers in the same order: sums of even and of odd
// blocks are kept apart, so results have the same bits.
//
// It cannot deadlock: group 1 waits for keys and for group 0's probabilities of a block, group 0 for its keys and for group 1's values of the
// block before. Keys of block n go into buffer n % 2 when both groups have released block n - 2. Queries are replaced when group 0 has
// scored an item's last block; group 1, which does not read them, says so at the item's start.
#pragma once

#include "core.cuh"

namespace mla {

template <class C>
__device__ __forceinline__ void math_one_scorer(const Problem& p, SharedMemory& s, typename C::Work item, int rank, int group) {
  using Element = typename C::Element;
  constexpr int kFree = kHandoverRest;  // the tile of probabilities may be overwritten
  const int lane = threadIdx.x & 31, line = (threadIdx.x & 127) / 32 * 16 + lane / 4;
  const uint32_t keys = shared_address(s.k[0]), probabilities = shared_address(s.p1);
  uint32_t phases = 0, q_phase = 0;  // a bit for each buffer
  bool started = false;

  for (; item.more(); item.next()) {
    item.find_split();
    const int first_row = (item.group * (C::kPair ? 2 : 1) + rank) * kRows;
    // The producer loads queries ahead of time. The first ones are loaded here, while it brings the first keys.
    if (group == 1 && !started && item.begin < item.end) {
      load_queries<C>(p, s, item.query, first_row, (threadIdx.x >> 5) & 3);
      started = true;
    }
    float o[128] = {};
    RowState row;
    if (item.begin >= item.end) {  // no keys at all
      finish_empty<C>(p, item, first_row);
      continue;
    }
    if (group == 0) {
      const int limit[2] = {item.keys, item.keys};
      float other[2] = {0.0f, 0.0f};  // the sums of blocks of the other parity
      barrier_wait(shared_address(&s.q_full), q_phase);
      fence_async_proxy();
      q_phase ^= 1;
      int buffer = 0;
#pragma unroll 1
      for (int block = item.begin; block < item.end; ++block, buffer ^= 1) {
        float scores[32];
        uint32_t packed[16];
        compute_scores<C>(scores, s, buffer, phases >> buffer & 1);
        const uint64_t mask = read_mask<C>(s, buffer, phases >> buffer & 1);
        phases ^= 1u << buffer;
        mma_wait<0>();
        hold(scores);
        if (block + 1 == item.end) release_local(s.q_empty);
        take_maximum<C>(scores, row, mask, block * kBlock, limit);
        const float first = next_reference(row.reference[0], row.top[0], p.scale_log2);
        const float second = next_reference(row.reference[1], row.top[1], p.scale_log2);
        float added[2] = {0.0f, 0.0f};
        exponentiate<Element, 0, 4>(scores, packed, added, p.scale_log2, first, second);
        if (block > item.begin) named_sync(kFree, 256);
        if ((lane & 3) == 0) {
          s.reference[0][line] = first;
          s.reference[0][line + 8] = second;
        }
        store_probabilities<0, 4>(packed, probabilities);
        named_arrive(kHandover, 256);
        rescale(o, row, first, second, other);
        add_values<Element>(o, packed, keys + buffer * (kTiles * kTile));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float sum = row.sum[half] + added[half];
          row.sum[half] = other[half];
          other[half] = sum;
        }
        mma_wait<0>();
        hold(o);
        release<C, 0>(s, buffer);
      }
      // `other` belongs to the last block.
      const bool odd = (item.end - item.begin) % 2 == 0;
      publish(s, odd ? 1 : 0, other, row.top);
      publish(s, odd ? 0 : 1, row.sum, row.top);
    } else {
      release_local(s.q_empty);
      int buffer = 0;
#pragma unroll 1
      for (int block = item.begin; block < item.end; ++block, buffer ^= 1) {
        wait_for_keys<C>(s, buffer, 1, phases >> buffer & 1);
        phases ^= 1u << buffer;
        named_sync(kHandover, 256);
        rescale(o, row, s.reference[0][line], s.reference[0][line + 8]);
        add_values<Element>(o, probabilities, keys + buffer * (kTiles * kTile) + kLeftTiles * kTile);
        mma_wait<0>();
        hold(o);
        if (block + 1 < item.end) named_arrive(kFree, 256);
        release<C, 1>(s, buffer);
      }
    }
    finish<C>(p, s, item, o, row, first_row, group);
  }
}

}  // namespace mla
