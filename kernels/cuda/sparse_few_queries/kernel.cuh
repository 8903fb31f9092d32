// FP8 sparse attention of few queries without a division of any sum: scores are divided over CTAs by keys, outputs by rows and columns.
//
// The attention core (../attention/core.cuh) adds the keys of a query in the order of its list. Here, too: a score is one chain of MMAs over
// the dims, the references of the exponentials follow from the maxima of blocks in order, and an output is one chain of MMAs over the keys.
// mma.sync m16n8k16 and the warpgroup MMAs of bf16 give equal bits, so the results of both equal each other bit for bit.
#pragma once

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "../attention/softmax.cuh"

namespace mla {

constexpr int kScoreThreads = 256;
constexpr int kScoreKeys = 32;                 // keys of a CTA that computes scores
constexpr int kPitch = (kWidth + 8) * 2;       // bytes between rows in shared memory: an odd number of 16 bytes, so no bank conflicts
constexpr int kMostBlocks = 128;               // of a query

struct ScoreMemory {
  uint8_t q[kRows * kPitch], k[kScoreKeys * kPitch];
  bool counts[kScoreKeys];
};

// Scratch of both kernels. Scores of a block are in the order in which the lanes of a quad hold them: lane t has 16 after one another,
// of the columns 8 j + 2 t and 8 j + 2 t + 1 for j = 0 ... 7. A maximum is of 16 columns.
struct Scratch {
  float* scores;   // [queries, rows, width]
  float* maxima;   // [queries, rows, width / 16]
  int width;       // the table's, rounded up to whole blocks
};

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
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

constexpr uint32_t kNoRecord = ~0u;

// Where the record of a column starts, in units of 16 bytes.
__device__ __forceinline__ uint32_t record_of(const Problem& p, int query, int column, int count) {
  const int slot = p.keys.slot<Lookup::kIndices>(query, column, count);
  return slot < 0 ? kNoRecord : static_cast<uint32_t>(p.keys.offset(slot) >> 4);
}

// Scores of 64 rows and 32 keys of a query. A warp has 16 rows and 16 keys.
__global__ void __launch_bounds__(kScoreThreads, 2) few_queries_scores_kernel(const __grid_constant__ Problem p,
                                                                             const __grid_constant__ Scratch scratch) {
  extern __shared__ __align__(1024) uint8_t memory[];
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
  const int thread = threadIdx.x, lane = thread & 31, warp = thread / 32;
  const int first_key = blockIdx.x * kScoreKeys, first_row = blockIdx.y * kRows, query = blockIdx.z;
  const int count = p.keys.count<Lookup::kIndices>(query);
  if (first_key / kBlock * kBlock >= count) return;  // no key in the block
  ScoreMemory& s = *reinterpret_cast<ScoreMemory*>(memory);
  const uint32_t q = shared_address(s.q), k = shared_address(s.k);
  {
    const __nv_bfloat16* rows = static_cast<const __nv_bfloat16*>(p.q) + query * p.q_stride;
    for (int i = thread; i < kRows * (kWidth / 8); i += kScoreThreads) {
      const int row = i / (kWidth / 8), chunk = i % (kWidth / 8);
      const bool exists = first_row + row < p.rows;
      copy16<0>(q + row * kPitch + chunk * 16, rows + (exists ? (first_row + row) * p.q_head_stride + chunk * 8 : 0), exists ? 16 : 0);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    const int key = thread / 8, part = thread % 8;
    const uint32_t start = record_of(p, query, first_key + key, count);
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
    asm volatile("cp.async.wait_group 0;" ::: "memory");
  }
  __syncthreads();

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
    float* to = scratch.scores + row * scratch.width + column / kBlock * kBlock + t * 16 + column % kBlock / 4;
    *reinterpret_cast<float4*>(to) = make_float4(scores[0][2 * half], scores[0][2 * half + 1], scores[1][2 * half], scores[1][2 * half + 1]);
    if (t == 0) scratch.maxima[row * (scratch.width / 16) + column / 16] = top;
  }
}

// The outputs of a CTA: kTileRows rows and kColumns columns, for keys in chunks of kChunk, which only divide the work in time. A warp has
// 16 rows and 8 columns.
template <int kTileRows_, int kColumns_, int kChunk_>
struct ValueTile {
  static constexpr int kTileRows = kTileRows_, kColumns = kColumns_, kChunk = kChunk_, kBlocks = kChunk / kBlock;
  static constexpr int kColumnWarps = kColumns / 8, kWarps = kTileRows / 16 * kColumnWarps;
  static constexpr int kThreads = kWarps < 8 ? 256 : 32 * kWarps;  // more than the MMAs need convert values and exponentiate
  static constexpr int kPieces = kColumns / 16;                    // of 16 bytes that a CTA reads of a key
  static constexpr int kLoads = kChunk * kPieces / kThreads;
  static constexpr int kProbabilityPitch = (kChunk + 8) * 2, kValuePitch = (kColumns + 8) * 2;
  static constexpr int kItems = kTileRows * 4 * kBlocks / kThreads;  // quarters of a row's block that a thread exponentiates
  static_assert(kTileRows * 4 <= kThreads && kChunk * kPieces % kThreads == 0 && kTileRows * 4 * kBlocks % kThreads == 0);
};

template <class Tile>
struct ValueMemory {
  static constexpr int kTileRows = Tile::kTileRows;
  uint8_t probabilities[kTileRows * Tile::kProbabilityPitch];
  uint8_t values[Tile::kChunk * Tile::kValuePitch];
  float reference[kTileRows][kMostBlocks + 1];  // of each block; the maxima before that
  float factor[kTileRows][kMostBlocks + 1];     // what sums and outputs are multiplied by before a block is added
  float added[kTileRows][Tile::kBlocks][4];     // a block's sum of probabilities, by the lanes of a quad
  float total[kTileRows], top[kTileRows], last[kTileRows];
  uint32_t records[];  // where those of the query start
};

template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1) few_queries_values_kernel(const __grid_constant__ Problem p,
                                                                                const __grid_constant__ Scratch scratch) {
  using Memory = ValueMemory<Tile>;
  constexpr int kTileRows = Tile::kTileRows, kBlocks = Tile::kBlocks, kLoads = Tile::kLoads, kPieces = Tile::kPieces;
  constexpr int kThreads = Tile::kThreads, kChunk = Tile::kChunk, kItems = Tile::kItems;
  extern __shared__ __align__(1024) uint8_t memory[];
  Memory& s = *reinterpret_cast<Memory*>(memory);
  const int thread = threadIdx.x, lane = thread & 31, warp = thread / 32;
  const int first_column = blockIdx.x * Tile::kColumns, first_row = blockIdx.y * kTileRows, query = blockIdx.z;
  // Lengths, indices and the cache are older than the scores, whose kernel lets this one start after it waited for them.
  const int count = p.keys.count<Lookup::kIndices>(query), blocks = (count + kBlock - 1) / kBlock;
  for (int i = thread; i < blocks * kBlock; i += kThreads) s.records[i] = record_of(p, query, i, count);
  __syncthreads();
  uint4 bytes[kLoads];
  float scales[kLoads];
  const auto load_values = [&](int first) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int piece = thread + i * kThreads;
      const int key = first + piece / kPieces;
      const uint32_t start = key < blocks * kBlock ? s.records[key] : kNoRecord;
      bytes[i] = make_uint4(0, 0, 0, 0);
      scales[i] = 0.0f;
      if (start != kNoRecord) {
        const uint8_t* record = p.keys.latent + (uint64_t(start) << 4);
        bytes[i] = __ldg(reinterpret_cast<const uint4*>(record + first_column + piece % kPieces * 16));
        scales[i] = __ldg(reinterpret_cast<const float*>(record + kValueWidth) + first_column / 128);
      }
    }
  };
  const uint32_t probabilities = shared_address(s.probabilities), values = shared_address(s.values);
  const auto store_values = [&] {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int piece = thread + i * kThreads;
      convert(bytes[i], scales[i], values + piece / kPieces * Tile::kValuePitch + piece % kPieces * 32);
    }
  };
  load_values(0);
  store_values();
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");

  const int64_t row_of = int64_t(query) * p.rows;
  float4 scores[kItems][4];
  const auto load_scores = [&](int first) {
#pragma unroll
    for (int x = 0; x < kItems; ++x) {
      const int i = thread + x * kThreads, row = i / 4 % kTileRows, block = first / kBlock + i / (4 * kTileRows);
      if (block >= blocks || first_row + row >= p.rows) continue;
      const float* from = scratch.scores + (row_of + first_row + row) * scratch.width + block * kBlock + (i & 3) * 16;
#pragma unroll
      for (int j = 0; j < 4; ++j) scores[x][j] = __ldcg(reinterpret_cast<const float4*>(from) + j);
    }
  };
  load_scores(0);
  for (int i = thread; i < kTileRows * blocks; i += kThreads) {
    const int row = i / blocks, block = i % blocks;
    float top = -INFINITY;
    if (first_row + row < p.rows) {
      const float4 of = __ldcg(reinterpret_cast<const float4*>(scratch.maxima + (row_of + first_row + row) * (scratch.width / 16)) + block);
      top = fmaxf(fmaxf(of.x, of.y), fmaxf(of.z, of.w));
    }
    s.reference[row][block] = top;
  }
  __syncthreads();
  if (thread < kTileRows) {
    float reference = kFloor, top = -INFINITY;
    for (int first = 0; first < blocks; first += 8) {
      float tops[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) tops[i] = first + i < blocks ? s.reference[thread][first + i] : -INFINITY;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        top = fmaxf(top, tops[i]);
        const float next = next_reference(reference, top, p.scale_log2);
        s.reference[thread][first + i] = next;
        s.factor[thread][first + i] = next != reference && reference != kFloor ? exp2_approx(reference - next) : 1.0f;
        reference = next;
      }
    }
    s.top[thread] = top;
    s.last[thread] = reference;
  }
  __syncthreads();

  const int tile = warp / Tile::kColumnWarps, column = warp % Tile::kColumnWarps * 8, g = lane / 4, t = lane & 3;  // of this warp's output
  const int sum_row = thread / 4;
  float o[4] = {}, even = 0.0f, odd = 0.0f;
  for (int first = 0; first < count; first += kChunk) {
    const int first_block = first / kBlock, here = min(kBlocks, blocks - first_block);
    if (first > 0) store_values();
#pragma unroll
    for (int x = 0; x < kItems; ++x) {
      const int i = thread + x * kThreads, row = i / 4 % kTileRows, block = i / (4 * kTileRows);
      if (block >= here) break;
      float sum = 0.0f;
      uint32_t* to = reinterpret_cast<uint32_t*>(s.probabilities + row * Tile::kProbabilityPitch) + block * (kBlock / 2) + (i & 3);
      const bool exists = first_row + row < p.rows;
      const float reference = s.reference[row][first_block + block];
      const auto exponentiate = [&](int j, float low, float high) {
        low = exists ? exp2_approx(fmaf(low, p.scale_log2, -reference)) : 0.0f;
        high = exists ? exp2_approx(fmaf(high, p.scale_log2, -reference)) : 0.0f;
        sum += low + high;
        to[4 * j] = pack<__nv_bfloat16>(low, high);
      };
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        exponentiate(2 * j, scores[x][j].x, scores[x][j].y);
        exponentiate(2 * j + 1, scores[x][j].z, scores[x][j].w);
      }
      s.added[row][block][i & 3] = sum;
    }
    __syncthreads();
    if (first + kChunk < count) {
      load_scores(first + kChunk);
      load_values(first + kChunk);
    }
    if (warp < Tile::kWarps) {
      const int matrix = lane / 8, line = lane & 7;
      const uint32_t a_from = probabilities + (tile * 16 + (matrix & 1) * 8 + line) * Tile::kProbabilityPitch + (matrix >> 1) * 16;
      const uint32_t b_from = values + (matrix * 8 + line) * Tile::kValuePitch + column * 2;  // 32 keys
      uint32_t a[4][4], b[2][4];
      const auto load_block = [&](uint32_t (&a)[4][4], uint32_t (&b)[2][4], int block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          load_transposed(b[half], b_from + (block * 2 + half) * 32 * Tile::kValuePitch);
          load_matrices(a[2 * half], a_from + (block * 2 + half) * 64);
          load_matrices(a[2 * half + 1], a_from + (block * 2 + half) * 64 + 32);
        }
      };
      load_block(a, b, 0);
#pragma unroll 2
      for (int block = 0; block < here; ++block) {
        uint32_t next_a[4][4], next_b[2][4];
        load_block(next_a, next_b, min(block + 1, here - 1));  // ahead of the chain of MMAs
        const float upper = s.factor[tile * 16 + g][first_block + block], lower = s.factor[tile * 16 + g + 8][first_block + block];
        o[0] *= upper, o[1] *= upper, o[2] *= lower, o[3] *= lower;
#pragma unroll
        for (int step = 0; step < 4; ++step) multiply_add(o, a[step], b[step / 2][step % 2 * 2], b[step / 2][step % 2 * 2 + 1]);
#pragma unroll
        for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = next_a[i / 4][i % 4];
#pragma unroll
        for (int i = 0; i < 8; ++i) b[i / 4][i % 4] = next_b[i / 4][i % 4];
      }
    }
    if (sum_row < kTileRows)
      for (int block = 0; block < here; ++block) {
        const float factor = s.factor[sum_row][first_block + block], more = s.added[sum_row][block][t];
        even = __fmul_rn(even, factor), odd = __fmul_rn(odd, factor);
        if ((first_block + block) & 1)  // the core adds even and odd blocks apart
          odd = __fadd_rn(odd, more);
        else
          even = __fadd_rn(even, more);
      }
    __syncthreads();
  }
  even = __fadd_rn(even, __shfl_xor_sync(~0u, even, 1));
  even = __fadd_rn(even, __shfl_xor_sync(~0u, even, 2));
  odd = __fadd_rn(odd, __shfl_xor_sync(~0u, odd, 1));
  odd = __fadd_rn(odd, __shfl_xor_sync(~0u, odd, 2));
  if (sum_row < kTileRows && t == 0) s.total[sum_row] = __fadd_rn(even, odd);
  __syncthreads();
  if (warp >= Tile::kWarps) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = tile * 16 + g + 8 * half, r = first_row + own;
    if (r >= p.rows) continue;
    const float total = s.total[own], reference = s.last[own];
    const bool empty = s.top[own] == -INFINITY;
    float factor = empty ? 0.0f : 1.0f / total;
    if (p.sink != nullptr && !empty) factor = 1.0f / (total + exp2f(p.sink[r] * 1.4426950408889634f - reference));
    reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.out) + (row_of + r) * kValueWidth + first_column + column)[t] =
        pack<__nv_bfloat16>(o[2 * half] * factor, o[2 * half + 1] * factor);
    if (blockIdx.x == 0 && column == 0 && t == 0) p.lse[row_of + r] = (empty ? -INFINITY : reference + log2f(total)) * p.lse_factor;
  }
}

}  // namespace mla
