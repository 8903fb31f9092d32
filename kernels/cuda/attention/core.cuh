// The attention core of most kernels here (one_scorer.cuh is the other): 64 query rows against blocks of 64 keys, by two math warpgroups in a
// seesaw: while one group does its softmax, the MMAs of the other run. The word and the idea come from FlashMLA's
// docs/20250422-new-kernel-deep-dive.md.
//
// Group 0 scores even blocks and group 1 odd ones. Each owns 256 of the 512 output columns, and hands its probabilities to the other:
//
//   group 0:  Q K0 | softmax 0 | P0 V0 left             | wait P1   | P1 V1 left   | (next) Q K0 ...
//   group 1:  wait P0          | P0 V0 right | Q K1     | softmax 1 | P1 V1 right
//
// In this order the steps are one chain: Q K1 follows P0 V0 right, and Q K0 of the next pair follows P1 V1 left, though neither needs
// them. The orders of schedule.cuh take scores out of the chain by issuing them earlier, and hand probabilities over in two halves.
//
// A block's buffer is released by halves as soon as its values are added, whether or not the other block has arrived: keys must be
// gathered without pause, and 2 x 72 KB of buffers are all that fits. A third warpgroup brings the keys (gather.cuh, pages.cuh,
// dequantize.cuh).
//
// With kPair two CTAs of a cluster hold two halves of a query's rows: each converts half of the keys of every block and copies them to
// the other. Both fetch rope, because P of even blocks overwrites that tile in each CTA at another time.
#pragma once

#include "multiply.cuh"

namespace mla {

// From scores to probabilities. Hands them over, and adds this group's values, whose MMAs are still in flight at the end.
//
// The fence after a store waits for the MMAs in flight. So the first half is stored before its values are added, or the other group
// would wait for them. For the second half the values may come first.
template <class C, int kParity>
__device__ __forceinline__ void softmax(float (&scores)[32], uint32_t (&packed)[16], float (&o)[128], RowState& row, const Problem& p,
                                        SharedMemory& s, uint64_t mask, int column, const int (&limit)[2], uint32_t tile, uint32_t v) {
  using Element = typename C::Element;
  const int lane = threadIdx.x & 31, line = (threadIdx.x & 127) / 32 * 16 + lane / 4;
  take_maximum<C>(scores, row, mask, column, limit);
  const float first = next_reference(row.reference[0], row.top[0], p.scale_log2);
  const float second = next_reference(row.reference[1], row.top[1], p.scale_log2);
  if ((lane & 3) == 0) {
    s.reference[kParity][line] = first;
    s.reference[kParity][line + 8] = second;
  }
  float added[2] = {0.0f, 0.0f};
  exponentiate<Element, 0, 2>(scores, packed, added, p.scale_log2, first, second);
  if constexpr (kParity == 1 && C::Order::kOdd == Ahead::kAll) {  // values of P0 are still being added: release their half of buffer 0
    mma_wait<0>();
    hold(o);
    release<C, 1>(s, 0);
  }
  store_probabilities<0, 2>(packed, tile);
  named_arrive(kHandover + kParity, 256);
  rescale(o, row, first, second);
  add_values<Element, 0, 2>(o, packed, v);
  exponentiate<Element, 2, 4>(scores, packed, added, p.scale_log2, first, second);
  add_values<Element, 2, 4>(o, packed, v);
  store_probabilities<2, 4>(packed, tile);
  named_arrive(kHandoverRest + kParity, 256);
  row.sum[0] += added[0];
  row.sum[1] += added[1];
}

template <class C, int kGroup>
__device__ __forceinline__ void math(const Problem& p, SharedMemory& s, int cluster, int clusters, int rank) {
  using Order = typename C::Order;
  const int lane = threadIdx.x & 31, line = (threadIdx.x & 127) / 32 * 16 + lane / 4;
  const uint32_t p0_tile = shared_address(s.k[0]) + 8 * kTile, p1_tile = shared_address(s.p1);
  const uint32_t v0 = shared_address(s.k[0]) + kGroup * kLeftTiles * kTile;
  const uint32_t v1 = shared_address(s.k[1]) + kGroup * kLeftTiles * kTile;
  uint32_t phase0 = 0, phase1 = 0, q_phase = 0;
  bool started = false;

  for (typename C::Work item(p, cluster, clusters); item.more(); item.next()) {
    const int first_row = (item.group * (C::kPair ? 2 : 1) + rank) * kRows;
    // The producer loads queries ahead of time. The first ones are loaded here, while it brings the first keys.
    if (kGroup == 1 && !started && item.begin < item.end) {
      load_queries<C>(p, s, item.query, first_row, (threadIdx.x >> 5) & 3);
      started = true;
    }
    float o[128] = {}, scores[32];
    uint32_t packed[16];
    RowState row;
    int limit[2] = {item.keys, item.keys};
    if (C::kLookup != Lookup::kIndices && p.causal)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        limit[half] -= p.new_tokens - 1 - min((first_row + line + 8 * half) / p.heads, p.new_tokens - 1);

    if (item.begin >= item.end) {  // no keys at all
      finish_empty<C>(p, item, first_row);
      continue;
    }
    barrier_wait(shared_address(&s.q_full), q_phase);
    fence_async_proxy();
    q_phase ^= 1;
    // ptxas waits for the MMAs in flight where branches around them meet again. So the loops have no branches around MMAs except the rare one
    // of `rescale`, and a single last block has code of its own. Group 0 leaves its loop in the middle, which keeps the code small.
    int block = item.begin;
    if constexpr (kGroup == 0) {
      compute_scores<C>(scores, s, 0, phase0);
      for (;; block += 2) {
        const uint64_t mask = read_mask<C>(s, 0, phase0);
        mma_wait<0>();
        hold(scores);
        if (block + 2 >= item.end) release_local(s.q_empty);
        softmax<C, 0>(scores, packed, o, row, p, s, mask, block * kBlock, limit, p0_tile, v0);
        mma_wait<0>();
        hold(o);
        release<C, 0>(s, 0);
        phase0 ^= 1;
        if (block + 2 >= item.end) break;
        scores_before<C, Order::kEven>(scores, s, 0, phase0);
        wait_for_values<C, 0>(s, 1, phase1);
        phase1 ^= 1;
        add_others_values<C, 1>(o, row, s, line, p1_tile, v1);
        scores_after<C, Order::kEven, 0>(scores, o, s, 0, phase0);
      }
      if (block + 1 < item.end) {
        wait_for_values<C, 0>(s, 1, phase1);
        phase1 ^= 1;
        add_others_values<C, 1>(o, row, s, line, p1_tile, v1);
        mma_wait<0>();
        hold(o);
        release<C, 0>(s, 1);
      } else {
        named_sync(kHandover + 1, 256);
      }
    } else {
      for (; block + 1 < item.end; block += 2) {
        scores_before<C, Order::kOdd>(scores, s, 1, phase1);
        wait_for_values<C, 1>(s, 0, phase0);
        phase0 ^= 1;
        add_others_values<C, 0>(o, row, s, line, p0_tile, v0);
        if constexpr (Order::kOdd != Ahead::kAll) scores_after<C, Order::kOdd, 1>(scores, o, s, 1, phase1);
        const uint64_t mask = read_mask<C>(s, 1, phase1);
        mma_wait<Order::kOdd == Ahead::kAll ? 1 : 0>();
        hold(scores);
        if (block + 2 >= item.end) release_local(s.q_empty);
        phase1 ^= 1;
        softmax<C, 1>(scores, packed, o, row, p, s, mask, (block + 1) * kBlock, limit, p1_tile, v1);
        mma_wait<0>();
        hold(o);
        release<C, 1>(s, 1);
      }
      if (block < item.end) {
        release_local(s.q_empty);
        wait_for_values<C, 1>(s, 0, phase0);
        phase0 ^= 1;
        add_others_values<C, 0>(o, row, s, line, p0_tile, v0);
        mma_wait<0>();
        hold(o);
        release<C, 1>(s, 0);
        named_arrive(kHandover + 1, 256);
      }
    }
    publish(s, kGroup, row.sum, row.top);
    finish<C>(p, s, item, o, row, first_row, kGroup);
  }
}

}  // namespace mla
