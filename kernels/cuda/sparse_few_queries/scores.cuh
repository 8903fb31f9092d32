// FP8 sparse attention of few queries without a division of any sum: scores are divided over CTAs by keys, outputs by rows and columns.
//
// The attention core (../attention/core.cuh) adds the keys of a query in the order of its list. Here, too: a score is one chain of MMAs over
// the dims, the references of the exponentials follow from the maxima of blocks in order, and an output is one chain of MMAs over the keys.
// mma.sync m16n8k16 and the warpgroup MMAs of bf16 give equal bits, so both give the same bits.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "../attention/softmax.cuh"
#include "../common/cluster.cuh"

namespace mla {

// ---- What the kernel of the scores and that of the values (values.cuh) share.

constexpr int kMostBlocks = 128;  // of a query

constexpr int kQuadColumns = 16;  // whose scores of a row a quad of lanes holds

// Scratch of both kernels, in groups of 16 columns. Lane t of a quad has four scores of a group, which follow each other: of the columns 2 t,
// 2 t + 1, 2 t + 8 and 2 t + 9. The rows of a group follow each other, too, so that eight lanes read a whole line of L2.
struct Scratch {
  float* scores;   // [queries, width / 16, rows, 16]
  float* maxima;   // [queries, rows, width / 16], of a group each
  int width;       // the table's, rounded up to whole blocks

  __device__ __forceinline__ float* scores_of(int query, int rows, int row, int group) const {
    return scores + ((int64_t(query) * (width / kQuadColumns) + group) * rows + row) * kQuadColumns;
  }
};

__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}

// Copies `bytes` bytes, a multiple of 16, to the same place in the shared memory of the CTAs of a cluster that `mask` names; they complete on
// the barrier of each.
__device__ __forceinline__ void copy_bulk_to_all(uint32_t destination, const void* source, uint32_t bytes, uint32_t barrier, uint16_t mask) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
                   destination),
               "l"(source), "r"(bytes), "r"(barrier), "h"(mask)
               : "memory");
}

// Sixteen e4m3 values times a scale, rounded once, to bf16.
__device__ __forceinline__ void convert(const uint4& bytes, float scale, uint32_t to) {
  const uint32_t words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
  uint32_t v[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const __half2_raw pair = __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(words[i / 2] >> (16 * (i & 1))), __NV_E4M3);
    const float2 exact = __half22float2(__half2(pair));
    v[i] = pack<__nv_bfloat16>(__fmul_rn(exact.x, scale), __fmul_rn(exact.y, scale));
  }
  store_shared16(to, v[0], v[1], v[2], v[3]);
  store_shared16(to + 16, v[4], v[5], v[6], v[7]);
}

// ---- The scores.

constexpr int kScoreThreads = 256;
constexpr int kScoreKeys = 32;            // keys of a CTA
constexpr int kPitch = (kWidth + 8) * 2;  // bytes between rows in shared memory: an odd number of 16 bytes, so no bank conflicts

struct ScoreMemory {
  uint8_t q[kRows * kPitch], k[kScoreKeys * kPitch];
  uint64_t q_copied;
  bool counts[kScoreKeys];
};

// Scores of 64 rows and 32 keys of a query. A warp has 16 rows and 16 keys. The CTAs of a cluster have the same rows: each reads a part of
// the queries from L2 and sends it to all of them.
template <int kCluster>
__global__ void __launch_bounds__(kScoreThreads, 3) few_queries_scores_kernel(const __grid_constant__ Problem p,
                                                                             const __grid_constant__ Scratch scratch) {
  constexpr int kClusterKeys = kScoreKeys * kCluster, kOwnRows = kRows / kCluster;
  static_assert(kClusterKeys % kBlock == 0 && kOwnRows <= 32);
  extern __shared__ __align__(1024) uint8_t memory[];
  ScoreMemory& s = *reinterpret_cast<ScoreMemory*>(memory);
  const uint32_t q = shared_address(s.q), k = shared_address(s.k), copied = shared_address(&s.q_copied);
  const int thread = threadIdx.x, lane = thread & 31, warp = thread / 32;
  const int first_key = blockIdx.x * kScoreKeys, first_row = blockIdx.y * kRows, query = blockIdx.z;
  if (thread == 0) {
    barrier_init(copied, 1);
    barrier_arrive_expect(copied, min(kRows, p.rows - first_row) * kWidth * 2);
  }
  cluster_sync_barriers();
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
  const int key = thread / 8, part = thread % 8;
  const int index = p.keys.fetch(query, first_key + key, p.keys.width);  // while the count is on its way
  const int count = p.keys.count<Lookup::kIndices>(query);
  if (first_key / kClusterKeys * kClusterKeys >= count) return;  // the cluster has no key
  {
    const int row = blockIdx.x % kCluster * kOwnRows + lane;
    if (warp == 0 && lane < kOwnRows && first_row + row < p.rows)
      copy_bulk_to_all(q + row * kPitch, static_cast<const __nv_bfloat16*>(p.q) + query * p.q_stride + (first_row + row) * p.q_head_stride,
                       kWidth * 2, copied, (1 << kCluster) - 1);
    const uint32_t start = first_key + key < count ? p.keys.record_of(index) : kNoRecord;
    uint4 bytes[4], rope = make_uint4(0, 0, 0, 0);
    float4 scales = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < 4; ++i) bytes[i] = make_uint4(0, 0, 0, 0);
    if (part == 0) s.counts[key] = start != kNoRecord;
    if (start != kNoRecord) {
      const uint8_t* record = p.keys.latent + (uint64_t(start) << 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) bytes[i] = __ldg(reinterpret_cast<const uint4*>(record + i * 128 + part * 16));
      scales = __ldg(reinterpret_cast<const float4*>(record + kValueWidth));
      rope = __ldg(reinterpret_cast<const uint4*>(record + kValueWidth + 16 + part * 16));
    }
    const uint32_t to = k + key * kPitch;
    convert(bytes[0], scales.x, to + part * 32);
    convert(bytes[1], scales.y, to + 256 + part * 32);
    convert(bytes[2], scales.z, to + 512 + part * 32);
    convert(bytes[3], scales.w, to + 768 + part * 32);
    store_shared16(to + 1024 + part * 16, rope.x, rope.y, rope.z, rope.w);
  }
  __syncthreads();
  barrier_wait(copied, 0);

  const int rows = warp % 4 * 16, keys = warp / 4 * 16, matrix = lane / 8, line = lane & 7;
  const uint32_t a_from = q + (rows + (matrix & 1) * 8 + line) * kPitch + (matrix >> 1) * 16;
  const uint32_t b_from = k + (keys + (matrix >> 1) * 8 + line) * kPitch + (matrix & 1) * 16;
  float scores[2][4] = {};
#pragma unroll 12
  for (int step = 0; step < kWidth / 16; ++step) {
    uint32_t a[4], b[4];
    load_matrices(a, a_from + step * 32);
    load_matrices(b, b_from + step * 32);
    multiply_add(scores[0], a, b[0], b[1]);
    multiply_add(scores[1], a, b[2], b[3]);
  }
  const int t = lane & 3, column = first_key + keys;
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!s.counts[keys + 8 * j + 2 * t + i]) scores[j][i] = scores[j][i + 2] = -INFINITY;
    }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = first_row + rows + lane / 4 + 8 * half;
    float top = fmaxf(fmaxf(scores[0][2 * half], scores[0][2 * half + 1]), fmaxf(scores[1][2 * half], scores[1][2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    if (r >= p.rows) continue;
    const int64_t row = int64_t(query) * p.rows + r;
    float* to = scratch.scores_of(query, p.rows, r, column / kQuadColumns) + t * 4;
    *reinterpret_cast<float4*>(to) = make_float4(scores[0][2 * half], scores[0][2 * half + 1], scores[1][2 * half], scores[1][2 * half + 1]);
    if (t == 0) scratch.maxima[row * (scratch.width / kQuadColumns) + column / kQuadColumns] = top;
  }
}

}  // namespace mla
