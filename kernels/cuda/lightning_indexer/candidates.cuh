// An upper bound of every score, and a bit for each key whose bound reaches the query's threshold, for 33 to 64 heads.
//
// The MMAs of keys and heads are those of prefill.cuh. What follows is cheaper: ReLU and conversion to bf16 are one instruction for two
// values. Groups of eight heads with similar weights are added in bf16. The weighted sum over the eight groups of both queries is a second
// MMA, with weights enlarged.
#pragma once

#include "prefill.cuh"

namespace indexer {

constexpr int kMembers = 8;                 // heads of a group
constexpr int kHeadGroups = 64 / kMembers;  // of a query
constexpr int kWordKeys = 16;               // keys of a word of the mask: those of a warp in one MMA
constexpr int kTileWords = kTile / kWordKeys;

// What a math warpgroup needs of a query's weights besides the factor and the error below.
struct BoundWeights {
  __nv_bfloat16 ratios[64];   // of the head in each column: its weight divided by the group's. The heads of group g are in columns g + 8 i.
  __nv_bfloat16 upper[2][kHeadGroups];  // of each group, rounded, and the rest
  __nv_bfloat16 unused[64 - 2 * kHeadGroups];
};
static_assert(sizeof(BoundWeights) == 64 * sizeof(float));  // so that they are copied like weights

struct Candidates {
  const float* thresholds;  // [rows]
  const float2* scales;     // [rows]: factor of the second MMA's sums, and what is added to a bound
  // [pairs of rows, words]: a word for every 16 keys, of which bit 4 r + 2 q + h belongs to key r + 8 h and to row q of the pair. Words of
  // tiles that the block of queries does not need are not written, bits of keys outside a row's range mean nothing.
  uint32_t* mask;
  int words;
};

struct CandidatesMemory {
  PrefillMemory tiles;
  alignas(1024) __nv_bfloat16 weights[kGroups][8 * 64];  // of a warpgroup: 8 columns x (2 queries x 8 groups) in rows of 128 bytes, swizzled
};
static_assert(sizeof(CandidatesMemory) <= 227 * 1024);

// Two products without their negative values, as bf16.
__device__ __forceinline__ uint32_t pack_relu(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// Predicated, like `store_if`.
__device__ __forceinline__ void store_word_if(bool condition, uint32_t* to, uint32_t word) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %0, 0;\n@p st.global.b32 [%1], %2;\n}\n" ::"r"(int(condition)), "l"(to), "r"(word)
               : "memory");
}

__device__ __forceinline__ void candidates_math(const Prefill& p, const Candidates& c, CandidatesMemory& m, int group) {
  using Weigh = cute::SM90::GMMA::MMA_64x8x16_F32BF16BF16_RS<cute::SM90::GMMA::Major::K, cute::SM90::GMMA::Major::K>;
  using Scale = cute::SM90::GMMA::ScaleOut;
  constexpr uint64_t kHigh = uint64_t(1024 >> 4 | 1 << 30) << 32;  // as in `multiply_step`
  PrefillMemory& s = m.tiles;
  const int lane = threadIdx.x & 31, warp = uniform(threadIdx.x / 32 % 4);
  const int query = (lane & 3) >> 1;                     // a quad: two lanes of each query, for a key each
  const int key = 16 * warp + lane / 4 + 8 * (lane & 1);  // of this lane, of the 64
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
    {
      // Columns 0 and 2 for the first query, 4 and 6 for the second; the rest of the weights follow each.
      const int i = threadIdx.x % kWarpgroup, column = i / 16, part = i % 16;
      const bool own = column / 4 == part / kHeadGroups;
      m.weights[group][column * 64 + ((part / 8) ^ column) * 8 + part % 8] =
          own ? all[column / 4].upper[column % 2][part % kHeadGroups] : __nv_bfloat16(0.0f);
    }
    common::fence_async_proxy();
    common::named_sync(1 + group, kWarpgroup);
    uint32_t ratios[2][kMembers - 1];
#pragma unroll
    for (int which = 0; which < 2; ++which)
#pragma unroll
      for (int i = 1; i < kMembers; ++i)
        ratios[which][i - 1] = *reinterpret_cast<const uint32_t*>(all[which].ratios + kHeadGroups * i + 2 * (lane & 3));

    const int pair = run.item * kGroups + group, row = pair * 2 + query, at_most = min(row, p.rows - 1);
    const float threshold = row < p.rows ? __ldg(c.thresholds + at_most) : INFINITY;
    const float2 scales = __ldg(c.scales + at_most);
    const float factor = scales.x, error = scales.y;
    const bool stores = lane == 0 && pair * 2 < p.rows;
    // Words are stored a tile later. During the first tile those of keys that do not exist are, at the places of the first tile's own.
    uint32_t* words = c.mask + (int64_t(pair) * c.words + begin * kTileWords + warp);
    uint32_t* earlier_words = words;

    uint32_t products[kColumns / 4] = {}, groups[2][2];
    float sums[4] = {}, bound = 0.0f;
    float scale = 0.0f, earlier_scale = 0.0f;  // of `products`, and of `bound`
    const auto start_weighing = [&] {
#pragma unroll
      for (int which = 0; which < 2; ++which)
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // rows of the MMA: keys, and those 8 further
          const uint32_t* column = products + 16 * which + half;
          groups[which][half] = column[0];
#pragma unroll
          for (int i = 1; i < kMembers; ++i) groups[which][half] = multiply_add(column[2 * i], ratios[which][i - 1], groups[which][half]);
        }
      common::mma_begin();
      Weigh::fma(groups[0][0], groups[0][1], groups[1][0], groups[1][1], kHigh | weight_tile, sums[0], sums[1], sums[2], sums[3],
                 Scale::Zero);
      common::mma_commit();
    };
    const auto finish_weighing = [&] {
      hold(sums);
      bound = fmaf(lane & 1 ? sums[2] + sums[3] : sums[0] + sums[1], factor, error);
      earlier_scale = scale;
    };
    const auto store = [&](int half) {
      const float upper = bound * earlier_scale;
      const uint32_t found = __ballot_sync(~0u, !(upper < threshold));
      store_word_if(stores, earlier_words + half * (kKeys / kWordKeys), found);
    };
    const uint32_t q = descriptor(s.queries[queries.stage][group]);
    for (int tile = begin; tile < end; ++tile, ring.advance()) {
      wait(&s.full[ring.stage], ring.parity);
#pragma unroll 1  // unrolled, the groups of the second half are added before its MMA starts: 4 % slower
      for (int half = 0; half < kTile / kKeys; ++half) {
        multiply<kColumns>(d, descriptor(s.keys[ring.stage] + half * kKeys * kWidth), q);
        start_weighing();  // of the half before; the sums of the one before that are ready
        store(half);
        mma_wait<0>();
        hold(d);
        finish_weighing();
        scale = s.scales[ring.stage][half * kKeys + key];
#pragma unroll
        for (int i = 0; i < kColumns / 4; ++i) products[i] = pack_relu(d[2 * i], d[2 * i + 1]);
      }
      __syncwarp();
      if (lane == 0) arrive(&s.empty[ring.stage]);
      earlier_words = words;
      words += kTileWords;
    }
    start_weighing();
    store(0);
    mma_wait<0>();
    finish_weighing();
    store(1);
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
