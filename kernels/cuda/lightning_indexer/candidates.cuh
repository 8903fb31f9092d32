// Bounds of every score, and a list of the keys whose upper bound reaches the query's threshold, for 33 to 64 heads.
//
// The MMAs of keys and heads are those of prefill.cuh, with queries divided by 2^6. What follows is cheaper: ReLU and conversion to fp16 are
// one instruction for two values. Groups of four heads with similar weights are added in fp16. The weighted sum over the 16 groups is a second
// MMA, with weights enlarged for an upper bound and reduced for a lower one.
#pragma once

#include "prefill.cuh"

namespace indexer {

constexpr int kPositionBits = 20;  // of an entry's first word; above them the width of the interval
constexpr int kChunk = 16;         // entries of a list that a warp reserves at a time

// What a math warpgroup needs of a query's weights besides the factor and the error below.
struct BoundWeights {
  __half ratios[64];   // of the head in each column: its weight divided by the group's. The heads of group g are in columns g + 16 i.
  __half sides[4][16];  // of each group: upper weight, rounded, and the rest; lower weight, rounded, and the rest
};
static_assert(sizeof(BoundWeights) == 64 * sizeof(float));  // so that they are copied like weights

struct Candidates {
  const float* thresholds;  // [rows]
  const float2* scales;     // [rows]: factor of the second MMA's sums, and what is added to an upper and subtracted from a lower bound
  uint2* entries;           // [rows, capacity]: (width and position, bits of the upper bound); an upper bound of -inf: none
  int32_t* reserved;        // [rows]: entries reserved; more than `capacity`: some were lost
  int capacity;
};

struct CandidatesMemory {
  PrefillMemory tiles;
  alignas(1024) __half weights[kGroups][2][8 * 64];  // for each query of a warpgroup: 8 columns x 16 groups in rows of 128 bytes, swizzled
};
static_assert(sizeof(CandidatesMemory) <= 227 * 1024);

// Two products without their negative values, as fp16.
__device__ __forceinline__ uint32_t pack_relu(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

__device__ __forceinline__ void candidates_math(const Prefill& p, const Candidates& c, CandidatesMemory& m, int group) {
  using Weigh = cute::SM90::GMMA::MMA_64x8x16_F32F16F16_RS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>;
  using Scale = cute::SM90::GMMA::ScaleOut;
  constexpr uint64_t kHigh = uint64_t(1024 >> 4 | 1 << 30) << 32;  // as in `multiply_step`
  PrefillMemory& s = m.tiles;
  const int lane = threadIdx.x & 31, warp = uniform(threadIdx.x / 32 % 4);
  const int query = (lane & 3) >> 1, leader = 2 * query;  // a quad: two lanes of each query
  const uint32_t lanes = 0x33333333u << (2 * query);
  const int key = 16 * warp + lane / 4 + 8 * (lane & 1);
  const uint32_t weight_tile = uniform(descriptor(m.weights[group]));
  float d[kColumns / 2];
  Ring<kPrefillStages> ring;
  for (Ring<2> queries;; queries.advance()) {
    wait(&s.queries_full[queries.stage], queries.parity);
    const Run& run = s.run[queries.stage];
    const int begin = uniform(run.begin), end = uniform(run.end);
    if (begin < 0) break;
    const BoundWeights* all = reinterpret_cast<const BoundWeights*>(s.weights[queries.stage][group]);
    common::named_sync(1 + group, kWarpgroup);  // no warp's MMA reads the weights of the run before any more
    for (int i = threadIdx.x % kWarpgroup; i < 2 * 8 * 16; i += kWarpgroup) {
      const int which = i / 128, column = i / 16 % 8, part = i % 16;
      m.weights[group][which][column * 64 + ((part / 8) ^ column) * 8 + part % 8] =
          column / 4 == which ? all[which].sides[column % 4][part] : __float2half_rn(0.0f);
    }
    common::fence_async_proxy();
    common::named_sync(1 + group, kWarpgroup);
    uint32_t ratios[2][3][2];
#pragma unroll
    for (int which = 0; which < 2; ++which)
#pragma unroll
      for (int i = 0; i < 3; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          ratios[which][i][half] = *reinterpret_cast<const uint32_t*>(all[which].ratios + 16 * (i + 1) + 8 * half + 2 * (lane & 3));

    const int row = (run.item * kGroups + group) * 2 + query, at_most = min(row, p.rows - 1);
    const int2 range = keys_of(p, row);
    const float threshold = row < p.rows ? __ldg(c.thresholds + at_most) : INFINITY;
    const float2 scales = __ldg(c.scales + at_most);
    const float factor = scales.x, error = lane & 1 ? -scales.y : scales.y;
    uint2* entries = c.entries + int64_t(at_most) * c.capacity;
    int32_t* reserved = c.reserved + at_most;
    const bool leads = lane == leader && row < p.rows;
    int at = 0, limit = 0, pending = leads ? atomicAdd(reserved, kChunk) : 0;

    uint32_t products[kColumns / 4] = {}, groups[2][4];
    float sums[4] = {}, near = 0.0f, far = 0.0f;  // bounds of two keys: in even lanes upper ones, in odd lanes lower ones
    float scale = 0.0f, earlier_scale = 0.0f;     // of `products`, and of `near` and `far`
    int position = -1, earlier_position = -1;
    const auto start_weighing = [&] {
#pragma unroll
      for (int which = 0; which < 2; ++which)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t* four = products + 16 * which + i;
          groups[which][i] = multiply_add(four[4], ratios[which][0][i / 2], four[0]);
          groups[which][i] = multiply_add(four[8], ratios[which][1][i / 2], groups[which][i]);
          groups[which][i] = multiply_add(four[12], ratios[which][2][i / 2], groups[which][i]);
        }
      common::mma_begin();
#pragma unroll
      for (int which = 0; which < 2; ++which)
        Weigh::fma(groups[which][0], groups[which][1], groups[which][2], groups[which][3], kHigh | (weight_tile + which * 64),
                   sums[0], sums[1], sums[2], sums[3], which ? Scale::One : Scale::Zero);
      common::mma_commit();
    };
    const auto finish_weighing = [&] {
      hold(sums);
      near = fmaf(sums[0] + sums[1], factor, error);
      far = fmaf(sums[2] + sums[3], factor, error);
      earlier_scale = scale, earlier_position = position;
    };
    const auto append = [&] {  // each lane takes one of the two keys
      const float other = __shfl_xor_sync(~0u, lane & 1 ? near : far, 1);
      const float one = (lane & 1 ? far : near) * earlier_scale, two = other * earlier_scale;
      const float upper = fmaxf(one, two);
      // Infinite sums of negative weights say nothing: a product did not fit into fp16.
      const bool reaches = !(upper < threshold && upper > -INFINITY) && earlier_position >= range.x && earlier_position < range.y;
      const uint32_t found = __ballot_sync(~0u, reaches) & lanes;
      if (found != 0) {
        const int count = __popc(found);
        int to = at + __popc(found & ((1u << lane) - 1));
        at += count;
        if (at > limit) {
          const int next = __shfl_sync(lanes, pending, leader);
          to += to >= limit ? next - limit : 0;
          at += next - limit;
          limit = next + kChunk;
          if (leads) pending = atomicAdd(reserved, kChunk);
        }
        if (reaches && to < c.capacity) {
          const uint32_t width = min((__float_as_uint(__fsub_ru(upper, fminf(one, two))) >> 19) + 1, 0xFFFu);  // NaN: 0xFFF
          entries[to] = make_uint2(width << kPositionBits | earlier_position, __float_as_uint(upper > -INFINITY ? upper : NAN));
        }
      }
    };
    const uint32_t q = descriptor(s.queries[queries.stage][group]);
    for (int tile = begin; tile < end; ++tile, ring.advance()) {
      wait(&s.full[ring.stage], ring.parity);
#pragma unroll
      for (int half = 0; half < kTile / kKeys; ++half) {
        multiply<kColumns>(d, descriptor(s.keys[ring.stage] + half * kKeys * kWidth), q);
        start_weighing();  // of the half before; the sums of the one before that are ready
        append();
        mma_wait<0>();
        hold(d);
        finish_weighing();
        position = tile * kTile + half * kKeys + key;
        scale = s.scales[ring.stage][half * kKeys + key];
#pragma unroll
        for (int i = 0; i < kColumns / 4; ++i) products[i] = pack_relu(d[2 * i], d[2 * i + 1]);
      }
      __syncwarp();
      if (lane == 0) arrive(&s.empty[ring.stage]);
    }
    start_weighing();
    append();
    mma_wait<0>();
    finish_weighing();
    append();
    // What is left of the last chunk, and the one that was reserved beforehand.
    const int next = __shfl_sync(~0u, pending, leader);
    if (row < p.rows) {
      const int i = __popc(lanes & ((1u << lane) - 1));
      static_assert(kChunk == 16);  // an entry for each of the query's lanes
      if (at + i < limit && at + i < c.capacity) entries[at + i] = make_uint2(0, __float_as_uint(-INFINITY));
      if (next + i < c.capacity) entries[next + i] = make_uint2(0, __float_as_uint(-INFINITY));
    }
    __syncwarp();
    if (lane == 0) arrive(&s.queries_empty[queries.stage]);
  }
}

__global__ void __launch_bounds__(kPrefillThreads, 1)
    indexer_candidates_kernel(const __grid_constant__ Prefill p, const __grid_constant__ Candidates c,
                              const __grid_constant__ CUtensorMap query_map, const __grid_constant__ CUtensorMap key_map,
                              const __grid_constant__ CUtensorMap scale_map) {
  extern __shared__ __align__(1024) uint8_t memory[];
  CandidatesMemory& m = *reinterpret_cast<CandidatesMemory*>(memory);
  start_prefill<64>(p, m.tiles, query_map, key_map, scale_map);
  const int group = uniform(threadIdx.x / kWarpgroup);
  if (group == kGroups) {
    shrink_registers<32>();
    const int warp = threadIdx.x / 32 % 4;
    if (warp == 0) copy_keys<64>(p, key_map, scale_map, m.tiles);
    if (warp == 1) copy_queries<64>(p, query_map, m.tiles);
  } else {
    grow_registers<160>();
    candidates_math(p, c, m, group);
  }
}

}  // namespace indexer
