// FP8 sparse attention of few queries: outputs from scores, over all keys of a query in order.
#pragma once

#include "scores.cuh"

namespace mla {

// ---- The tile of output that a CTA computes, and the warps that bring its keys.

// The outputs of a CTA: kTileRows rows and kColumns columns. Keys come in chunks of kChunk, two at a time. Of its first warps one half
// exponentiates scores, the other converts values. Of the next warps each multiplies 16 rows and 16 columns, and the last ones add
// probabilities.
template <int kTileRows_, int kColumns_, int kChunk_>
struct ValueTile {
  static constexpr int kTileRows = kTileRows_, kColumns = kColumns_, kChunk = kChunk_, kBlocks = kChunk / kBlock;
  static constexpr int kColumnWarps = kColumns / 16, kScorers = 256, kConverters = 256;
  static constexpr int kMathThreads = kTileRows * 2 * kColumnWarps, kSumThreads = kTileRows * 4;
  static constexpr int kThreads = kScorers + kConverters + kMathThreads + kSumThreads;
  static constexpr int kPieces = kColumns / 16;  // of 16 bytes that a CTA reads of a key
  static constexpr int kLoads = kChunk * kPieces / kConverters;
  static constexpr int kWarpKeys = 32 / kPieces;  // that a warp reads at once: eight neighbours store pieces of different keys
  static constexpr int kProbabilityPitch = (kChunk + 8) * 2, kValuePitch = (kColumns + 8) * 2;
  static constexpr int kItems = kTileRows * 4 * kBlocks / kScorers;  // quarters of a row's block that a thread exponentiates
  static_assert(kChunk * kPieces % kConverters == 0 && kTileRows * 4 * kBlocks % kScorers == 0 && kThreads <= 1024);
};

template <class Tile>
struct ValueMemory {
  static constexpr int kTileRows = Tile::kTileRows;
  uint8_t probabilities[2][kTileRows * Tile::kProbabilityPitch];
  uint8_t values[2][Tile::kChunk * Tile::kValuePitch];
  float reference[kTileRows][kMostBlocks + 1];   // of each block
  float factor[kTileRows][kMostBlocks + 1];      // what sums and outputs are multiplied by before a block is added
  float added[2][Tile::kBlocks][kTileRows * 4];  // a block's sum of probabilities, by the lanes of a quad
  float total[kTileRows], top[kTileRows], last[kTileRows];
  uint32_t records[];  // where the query's records start
};

// Named barriers. For probabilities and for values: a chunk is there, or its place is free. The next number is for odd
// chunks. The others: the sums, the references, and the places of records are there.
constexpr int kProbabilitiesFull = 1, kProbabilitiesFree = 3, kValuesFull = 5, kValuesFree = 7, kTotals = 9, kReferences = 10, kRecords = 11;

// Calls bring(even chunk's registers, chunk) and bring(odd chunk's registers, chunk) for the chunks from `first` on, an even one.
template <class Loaded, class Bring>
__device__ __forceinline__ void bring_chunks(Loaded& even, Loaded& odd, int first, int chunks, const Bring& bring) {
#pragma unroll 1
  for (int chunk = first; chunk < chunks; chunk += 2) {
    bring(even, chunk);
    if (chunk + 1 < chunks) bring(odd, chunk + 1);
  }
}

// The threads that convert values. They do not depend on the kernel of the scores.
template <class Tile>
struct Converter {
  struct Loaded {
    uint4 bytes[Tile::kLoads];
    float scales[Tile::kLoads];
  };
  const Problem& p;
  ValueMemory<Tile>& s;
  int thread, query, count, blocks, first_column;

  // The starts of the query's records.
  __device__ __forceinline__ void look_up() const {
    constexpr int kAtOnce = 8;  // on their way together: of 2048 keys all
    for (int first = thread; first < blocks * kBlock; first += kAtOnce * Tile::kConverters) {
      int indices[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) indices[i] = p.keys.fetch(query, first + i * Tile::kConverters, count);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i * Tile::kConverters < blocks * kBlock) s.records[first + i * Tile::kConverters] = p.keys.record_of(indices[i]);
    }
  }
  // The key of this thread's i-th load.
  __device__ __forceinline__ int key_of(int i) const {
    return (thread / 32 + i * (Tile::kConverters / 32)) * Tile::kWarpKeys + thread % Tile::kWarpKeys;
  }
  __device__ __forceinline__ int piece() const { return thread % 32 / Tile::kWarpKeys; }

  // `chunk` may be past the end.
  __device__ __forceinline__ void load(Loaded& of, int chunk) const {
#pragma unroll
    for (int i = 0; i < Tile::kLoads; ++i) {
      const int key = chunk * Tile::kChunk + key_of(i);
      const uint32_t start = key < blocks * kBlock ? s.records[key] : kNoRecord;
      of.bytes[i] = make_uint4(0, 0, 0, 0);
      of.scales[i] = 0.0f;
      if (start != kNoRecord) {
        const uint8_t* record = p.keys.latent + (uint64_t(start) << 4);
        of.bytes[i] = __ldg(reinterpret_cast<const uint4*>(record + first_column + piece() * 16));
        of.scales[i] = __ldg(reinterpret_cast<const float*>(record + kValueWidth) + first_column / 128);
      }
    }
  }
  __device__ __forceinline__ void run(int chunks) const {
    constexpr int kThreads = Tile::kConverters + Tile::kMathThreads;
    look_up();
    named_sync(kRecords, Tile::kConverters);
    Loaded even, odd;
    load(even, 0);
    load(odd, 1);
    bring_chunks(even, odd, 0, chunks, [&](Loaded& of, int chunk) {
      if (chunk >= 2) named_sync(kValuesFree + (chunk & 1), kThreads);
      const uint32_t values = shared_address(s.values[chunk & 1]);
#pragma unroll
      for (int i = 0; i < Tile::kLoads; ++i) convert(of.bytes[i], of.scales[i], values + key_of(i) * Tile::kValuePitch + piece() * 32);
      named_arrive(kValuesFull + (chunk & 1), kThreads);
      load(of, chunk + 2);
    });
  }
};

// The threads that turn scores into probabilities.
template <class Tile>
struct Scorer {
  static constexpr int kTileRows = Tile::kTileRows;
  struct Loaded {
    float4 scores[Tile::kItems][4];
  };
  const Problem& p;
  const Scratch& scratch;
  ValueMemory<Tile>& s;
  int thread, query, blocks, first_row;

  // References of the blocks of a tile's rows, and what changes from each to the next. A warp has rows, a lane a block: of a row's maxima,
  // which only rise, those that exceed a reference by enough follow each other in a ballot. Calls meanwhile() when it has requested maxima.
  template <class Meanwhile>
  __device__ __forceinline__ void follow_maxima(const Meanwhile& meanwhile) const {
    constexpr int kWarps = Tile::kScorers / 32, kRowsOfWarp = kTileRows / kWarps;
    const int lane = thread % 32;
    float reference[kRowsOfWarp], top[kRowsOfWarp];
#pragma unroll
    for (int i = 0; i < kRowsOfWarp; ++i) reference[i] = kFloor, top[i] = -INFINITY;
    for (int first = 0; first < blocks; first += 32) {
      const int block = first + lane;
      float4 tops[kRowsOfWarp];
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        const int row = first_row + thread / 32 + i * kWarps;
        tops[i] = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
        if (block < blocks && row < p.rows) {
          const float* maxima = scratch.maxima + (int64_t(query) * p.rows + row) * (scratch.width / kQuadColumns);
          tops[i] = __ldcg(reinterpret_cast<const float4*>(maxima) + block);
        }
      }
      if (first == 0) meanwhile();
      float highest[kRowsOfWarp], own[kRowsOfWarp], factor[kRowsOfWarp];
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        highest[i] = fmaxf(top[i], fmaxf(fmaxf(tops[i].x, tops[i].y), fmaxf(tops[i].z, tops[i].w)));
        own[i] = reference[i], factor[i] = 1.0f;
      }
#pragma unroll
      for (int step = 1; step < 32; step *= 2)
#pragma unroll
        for (int i = 0; i < kRowsOfWarp; ++i) highest[i] = fmaxf(highest[i], __shfl_up_sync(~0u, highest[i], step));
      for (uint32_t any = 1; any != 0;) {  // a step of each row, whose latencies overlap
        any = 0;
#pragma unroll
        for (int i = 0; i < kRowsOfWarp; ++i) {
          const float next = next_reference(reference[i], highest[i], p.scale_log2);
          const uint32_t moved = __ballot_sync(~0u, next != reference[i]);
          const int at = moved == 0 ? 32 : __ffs(moved) - 1;
          const float to = __shfl_sync(~0u, next, at & 31);
          if (lane >= at) own[i] = to;
          if (lane == at && reference[i] != kFloor) factor[i] = exp2_approx(reference[i] - to);
          if (moved != 0) reference[i] = to;
          any |= moved;
        }
      }
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        top[i] = __shfl_sync(~0u, highest[i], 31);
        if (block < blocks) {
          s.reference[thread / 32 + i * kWarps][block] = own[i];
          s.factor[thread / 32 + i * kWarps][block] = factor[i];
        }
      }
    }
    if (lane == 0)
#pragma unroll
      for (int i = 0; i < kRowsOfWarp; ++i) {
        s.top[thread / 32 + i * kWarps] = top[i];
        s.last[thread / 32 + i * kWarps] = reference[i];
      }
  }
  // `chunk` may be past the end.
  __device__ __forceinline__ void load(Loaded& of, int chunk) const {
#pragma unroll
    for (int x = 0; x < Tile::kItems; ++x) {
      const int i = thread + x * Tile::kScorers, row = first_row + i / 4 % kTileRows, block = chunk * Tile::kBlocks + i / (4 * kTileRows);
      if (block >= blocks || row >= p.rows) continue;
      const float* from = scratch.scores_of(query, p.rows, row, block * (kBlock / kQuadColumns)) + (i & 3) * 4;
#pragma unroll
      for (int j = 0; j < 4; ++j) of.scores[x][j] = __ldcg(reinterpret_cast<const float4*>(from + j * p.rows * kQuadColumns));
    }
  }
  __device__ __forceinline__ void store(const Loaded& of, int chunk) const {
#pragma unroll
    for (int x = 0; x < Tile::kItems; ++x) {
      const int i = thread + x * Tile::kScorers, row = i / 4 % kTileRows, here = i / (4 * kTileRows), block = chunk * Tile::kBlocks + here;
      if (block >= blocks) break;
      uint32_t* to = reinterpret_cast<uint32_t*>(s.probabilities[chunk & 1] + row * Tile::kProbabilityPitch) + here * (kBlock / 2) + (i & 3);
      const bool exists = first_row + row < p.rows;
      const float reference = s.reference[row][block];
      float sum = 0.0f;
      const auto exponentiate = [&](int j, float low, float high) {
        low = exists ? exp2_approx(fmaf(low, p.scale_log2, -reference)) : 0.0f;
        high = exists ? exp2_approx(fmaf(high, p.scale_log2, -reference)) : 0.0f;
        sum += low + high;
        to[4 * j] = pack<__nv_bfloat16>(low, high);
      };
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        exponentiate(2 * j, of.scores[x][j].x, of.scores[x][j].y);
        exponentiate(2 * j + 1, of.scores[x][j].z, of.scores[x][j].w);
      }
      s.added[chunk & 1][here][i % (4 * kTileRows)] = sum;
    }
  }
  __device__ __forceinline__ void run(int chunks) const {
    constexpr int kThreads = Tile::kThreads - Tile::kConverters;
    Loaded even, odd;
    follow_maxima([&] {
      load(even, 0);
      load(odd, 1);
    });
    named_sync(kReferences, Tile::kScorers);
    bring_chunks(even, odd, 0, chunks, [&](Loaded& of, int chunk) {
      if (chunk >= 2) named_sync(kProbabilitiesFree + (chunk & 1), kThreads);
      store(of, chunk);
      named_arrive(kProbabilitiesFull + (chunk & 1), kThreads);
      load(of, chunk + 2);
    });
  }
};

// Waits for each chunk in turn, and calls add(chunk, its first block, its blocks).
template <class Tile, bool kWithValues, class Add>
__device__ __forceinline__ void for_each_chunk(int blocks, int chunks, const Add& add) {
  constexpr int kThreads = Tile::kThreads - Tile::kConverters, kValueThreads = Tile::kConverters + Tile::kMathThreads;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    if (kWithValues) named_sync(kValuesFull + (chunk & 1), kValueThreads);
    named_sync(kProbabilitiesFull + (chunk & 1), kThreads);
    add(chunk & 1, chunk * Tile::kBlocks, min(Tile::kBlocks, blocks - chunk * Tile::kBlocks));
    if (chunk + 2 < chunks) {
      if (kWithValues) named_arrive(kValuesFree + (chunk & 1), kValueThreads);
      named_arrive(kProbabilitiesFree + (chunk & 1), kThreads);
    }
  }
}

// The sums of the probabilities of a row, by four threads.
template <class Tile>
__device__ __forceinline__ void add_probabilities(ValueMemory<Tile>& s, int thread, int blocks, int chunks) {
  const int row = thread / 4;
  float sums[2] = {0.0f, 0.0f};  // the core adds even and odd blocks apart
  for_each_chunk<Tile, false>(blocks, chunks, [&](int stage, int first_block, int here) {
#pragma unroll
    for (int block = 0; block < Tile::kBlocks; ++block) {
      if (block >= here) break;
      const float factor = s.factor[row][first_block + block];
      sums[0] = __fmul_rn(sums[0], factor), sums[1] = __fmul_rn(sums[1], factor);
      sums[block & 1] = __fadd_rn(sums[block & 1], s.added[stage][block][thread]);
    }
  });
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sums[i] = __fadd_rn(sums[i], __shfl_xor_sync(~0u, sums[i], 1));
    sums[i] = __fadd_rn(sums[i], __shfl_xor_sync(~0u, sums[i], 2));
  }
  if ((thread & 3) == 0) s.total[row] = __fadd_rn(sums[0], sums[1]);
  named_arrive(kTotals, Tile::kMathThreads + Tile::kSumThreads);
}

// The outputs of 16 rows and 16 columns, by a warp.
template <class Tile>
__device__ __forceinline__ void multiply_values(const Problem& p, ValueMemory<Tile>& s, int thread, int query, int blocks, int chunks,
                                                int first_row, int first_column) {
  const int lane = thread & 31, g = lane / 4, t = lane & 3, matrix = lane / 8, line = lane & 7;
  const int warp = thread / 32, tile = warp / Tile::kColumnWarps, column = warp % Tile::kColumnWarps * 16;
  float o[2][4] = {};
  for_each_chunk<Tile, true>(blocks, chunks, [&](int stage, int first_block, int here) {
    const uint32_t a_from = shared_address(s.probabilities[stage]) + (tile * 16 + (matrix & 1) * 8 + line) * Tile::kProbabilityPitch +
                            (matrix >> 1) * 16;
    const uint32_t b_from = shared_address(s.values[stage]) + ((matrix & 1) * 8 + line) * Tile::kValuePitch + column * 2 + (matrix >> 1) * 16;
    const float* factors = &s.factor[tile * 16 + g][first_block];
    constexpr int kLower = 8 * (kMostBlocks + 1);  // eight rows further
    constexpr int kAhead = 2;                      // steps of 16 keys that operands are loaded before their MMAs
    uint32_t a[4][4], b[4][4];
    const auto load_step = [&](int block, int step) {
      load_matrices(a[step], a_from + block * 128 + step * 32);
      load_transposed(b[step], b_from + (block * 64 + step * 16) * Tile::kValuePitch);
    };
#pragma unroll
    for (int step = 0; step < kAhead; ++step) load_step(0, step);
    float upper = factors[0], lower = factors[kLower];
#pragma unroll 1
    for (int block = 0; block < here; ++block) {
      const int next = min(block + 1, here - 1);
      const float next_upper = factors[next], next_lower = factors[kLower + next];
#pragma unroll
      for (int part = 0; part < 2; ++part) o[part][0] *= upper, o[part][1] *= upper, o[part][2] *= lower, o[part][3] *= lower;
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        load_step(step + kAhead < 4 ? block : next, (step + kAhead) % 4);
#pragma unroll
        for (int part = 0; part < 2; ++part) multiply_add(o[part], a[step], b[step][2 * part], b[step][2 * part + 1]);
      }
      upper = next_upper, lower = next_lower;
    }
  });
  named_sync(kTotals, Tile::kMathThreads + Tile::kSumThreads);
  const int64_t row_of = int64_t(query) * p.rows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int own = tile * 16 + g + 8 * half, r = first_row + own;
    if (r >= p.rows) continue;
    const float total = s.total[own], reference = s.last[own];
    const bool empty = s.top[own] == -INFINITY;
    float factor = empty ? 0.0f : 1.0f / total;
    if (p.sink != nullptr && !empty) factor = 1.0f / (total + exp2f(p.sink[r] * 1.4426950408889634f - reference));
#pragma unroll
    for (int part = 0; part < 2; ++part)
      reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(p.out) + (row_of + r) * kValueWidth + first_column + column + 8 * part)[t] =
          pack<__nv_bfloat16>(o[part][2 * half] * factor, o[part][2 * half + 1] * factor);
    if (first_column + column == 0 && t == 0) p.lse[row_of + r] = (empty ? -INFINITY : reference + log2f(total)) * p.lse_factor;
  }
}

// Twenty warps of 64 registers fit next to a CTA of the scores, and next to one of the kernel that follows. So the kernel is compiled as if for
// 1024 threads; tiles of 32 rows, whose CTAs leave no room for others, take the registers that they need.
template <class Tile>
__global__ void __launch_bounds__(Tile::kTileRows == 16 ? 1024 : Tile::kThreads, 1)
    flash_fwd_splitkv_mla_fp8_sparse_kernel_few_queries(const __grid_constant__ Problem p, const __grid_constant__ Scratch scratch) {
  extern __shared__ __align__(1024) uint8_t memory[];
  ValueMemory<Tile>& s = *reinterpret_cast<ValueMemory<Tile>*>(memory);
  const int first_column = blockIdx.x * Tile::kColumns, first_row = blockIdx.y * Tile::kTileRows, query = blockIdx.z;
  const int count = p.keys.count<Lookup::kIndices>(query), blocks = (count + kBlock - 1) / kBlock;
  // A list without keys has an empty chunk, whose barrier orders the writing of a row's maximum before its reading.
  const int chunks = max(1, (blocks + Tile::kBlocks - 1) / Tile::kBlocks);
  int thread = threadIdx.x;
  if (thread < Tile::kConverters) {
    // Lengths, indices and the cache are older than the scores, whose kernel lets this one start after it waited for them.
    Converter<Tile>{p, s, thread, query, count, blocks, first_column}.run(chunks);
    return;
  }
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
  if ((thread -= Tile::kConverters) < Tile::kScorers) {
    Scorer<Tile>{p, scratch, s, thread, query, blocks, first_row}.run(chunks);
  } else if ((thread -= Tile::kScorers) < Tile::kMathThreads) {
    multiply_values(p, s, thread, query, blocks, chunks, first_row, first_column);
  } else {
    add_probabilities(s, thread - Tile::kMathThreads, blocks, chunks);
  }
}

}  // namespace mla
