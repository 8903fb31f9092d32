// FP8 sparse attention of few queries: outputs from scores, over all keys of a query in order.
#pragma once

#include "producer.cuh"

namespace mla {

// Where the records of a query start.
template <class Tile>
__device__ __forceinline__ void look_up(const Problem& p, ValueMemory<Tile>& s, int query, int count, int blocks) {
  constexpr int kAtOnce = 6;  // on their way together: of 2048 keys all
  for (int first = threadIdx.x; first < blocks * kBlock; first += kAtOnce * Tile::kThreads) {
    int indices[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) indices[i] = p.keys.fetch(query, first + i * Tile::kThreads, count);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * Tile::kThreads < blocks * kBlock) s.records[first + i * Tile::kThreads] = place_of(p, indices[i]);
  }
}

// The maxima of blocks of a tile's rows, by its consumers.
template <class Tile>
__device__ __forceinline__ void load_maxima(const Problem& p, const Scratch& scratch, ValueMemory<Tile>& s, int thread, int query, int blocks,
                                            int first_row) {
  constexpr int kTileRows = Tile::kTileRows, kAtOnce = 3;  // on their way together: of 32 blocks and 16 rows all
  for (int first = thread; first < kTileRows * blocks; first += kAtOnce * Tile::kConsumers) {
    float4 tops[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int of = first + i * Tile::kConsumers, row = first_row + of % kTileRows, block = of / kTileRows;
      tops[i] = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      if (block < blocks && row < p.rows)
        tops[i] = __ldcg(reinterpret_cast<const float4*>(scratch.maxima + (int64_t(query) * p.rows + row) * (scratch.width / 16)) + block);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int of = first + i * Tile::kConsumers, block = of / kTileRows;
      if (block < blocks) s.reference[of % kTileRows][block] = fmaxf(fmaxf(tops[i].x, tops[i].y), fmaxf(tops[i].z, tops[i].w));
    }
  }
}

// References of the blocks of one row from their maxima, and what changes from each to the next.
template <class Tile>
__device__ __forceinline__ void follow_maxima(const Problem& p, ValueMemory<Tile>& s, int row, int blocks) {
  float reference = kFloor, top = -INFINITY;
  for (int first = 0; first < blocks; first += 8) {
    float tops[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) tops[i] = first + i < blocks ? s.reference[row][first + i] : -INFINITY;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      top = fmaxf(top, tops[i]);
      const float next = next_reference(reference, top, p.scale_log2);
      s.reference[row][first + i] = next;
      s.factor[row][first + i] = next != reference && reference != kFloor ? exp2_approx(reference - next) : 1.0f;
      reference = next;
    }
  }
  s.top[row] = top;
  s.last[row] = reference;
}

// Waits for each chunk in turn, and calls add(chunk, its first block, its blocks).
template <class Tile, class Add>
__device__ __forceinline__ void for_each_chunk(int blocks, int chunks, const Add& add) {
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    named_sync(kChunkFull + (chunk & 1), Tile::kThreads);
    add(chunk & 1, chunk * Tile::kBlocks, min(Tile::kBlocks, blocks - chunk * Tile::kBlocks));
    if (chunk + 2 < chunks) named_arrive(kChunkFree + (chunk & 1), Tile::kThreads);
  }
}

// The sums of the probabilities of a row, by four threads.
template <class Tile>
__device__ __forceinline__ void add_probabilities(ValueMemory<Tile>& s, int thread, int blocks, int chunks) {
  const int row = thread / 4;
  float sums[2] = {0.0f, 0.0f};  // the core adds even and odd blocks apart
  for_each_chunk<Tile>(blocks, chunks, [&](int stage, int first_block, int here) {
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
  named_arrive(kTotals, Tile::kConsumers);
}

// The outputs of 16 rows and 16 columns, by a warp.
template <class Tile>
__device__ __forceinline__ void multiply_values(const Problem& p, ValueMemory<Tile>& s, int thread, int query, int blocks, int chunks,
                                                int first_row, int first_column) {
  const int lane = thread & 31, g = lane / 4, t = lane & 3, matrix = lane / 8, line = lane & 7;
  const int warp = thread / 32, tile = warp / Tile::kColumnWarps, column = warp % Tile::kColumnWarps * 16;
  float o[2][4] = {};
  for_each_chunk<Tile>(blocks, chunks, [&](int stage, int first_block, int here) {
    const uint32_t a_from = shared_address(s.probabilities[stage]) + (tile * 16 + (matrix & 1) * 8 + line) * Tile::kProbabilityPitch +
                            (matrix >> 1) * 16;
    const uint32_t b_from = shared_address(s.values[stage]) + ((matrix & 1) * 8 + line) * Tile::kValuePitch + column * 2 + (matrix >> 1) * 16;
    const float* factors = &s.factor[tile * 16 + g][first_block];
    constexpr int kLower = 8 * (kMostBlocks + 1);  // eight rows further
    uint32_t a[4][4], b[4][4];  // of 16 keys each
    const auto load_block = [&](uint32_t (&a)[4][4], uint32_t (&b)[4][4], int block) {
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        load_matrices(a[step], a_from + block * 128 + step * 32);
        load_transposed(b[step], b_from + (block * 64 + step * 16) * Tile::kValuePitch);
      }
    };
    load_block(a, b, 0);
    float upper = factors[0], lower = factors[kLower];
#pragma unroll 2
    for (int block = 0; block < here; ++block) {
      uint32_t next_a[4][4], next_b[4][4];
      const int next = min(block + 1, here - 1);  // ahead of the chains of MMAs
      load_block(next_a, next_b, next);
      const float next_upper = factors[next], next_lower = factors[kLower + next];
#pragma unroll
      for (int part = 0; part < 2; ++part) o[part][0] *= upper, o[part][1] *= upper, o[part][2] *= lower, o[part][3] *= lower;
#pragma unroll
      for (int step = 0; step < 4; ++step)
#pragma unroll
        for (int part = 0; part < 2; ++part) multiply_add(o[part], a[step], b[step][2 * part], b[step][2 * part + 1]);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        a[i / 4][i % 4] = next_a[i / 4][i % 4];
        b[i / 4][i % 4] = next_b[i / 4][i % 4];
      }
      upper = next_upper, lower = next_lower;
    }
  });
  named_sync(kTotals, Tile::kConsumers);
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

// Up to twelve warps of 104 registers fit beside a CTA of the scores. So the kernel is compiled as if for 608 threads.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads < 512 ? 608 : Tile::kThreads, 1)
    few_queries_values_kernel(const __grid_constant__ Problem p, const __grid_constant__ Scratch scratch) {
  constexpr int kTileRows = Tile::kTileRows;
  extern __shared__ __align__(1024) uint8_t memory[];
  ValueMemory<Tile>& s = *reinterpret_cast<ValueMemory<Tile>*>(memory);
  const int thread = threadIdx.x;
  const int first_column = blockIdx.x * Tile::kColumns, first_row = blockIdx.y * kTileRows, query = blockIdx.z;
  const int count = p.keys.count<Lookup::kIndices>(query), blocks = (count + kBlock - 1) / kBlock;
  const int chunks = (blocks + Tile::kBlocks - 1) / Tile::kBlocks;
  const ValueProducer<Tile> producer{p, scratch, s, query, blocks, first_row, first_column};
  look_up(p, s, query, count, blocks);
  __syncthreads();
  Loaded<Tile> even, odd;
  if (thread < Tile::kProducers) {
    producer.load_values(even, 0);
    producer.load_values(odd, 1);
    producer.store_values(even, 0);
    producer.store_values(odd, 1);
  }
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
  if (thread < Tile::kProducers) {
    producer.load_scores(even, 0);
    producer.load_scores(odd, 1);
  } else {
    load_maxima(p, scratch, s, thread - Tile::kProducers, query, blocks, first_row);
    named_sync(kTotals, Tile::kConsumers);
    if (thread - Tile::kProducers < kTileRows) follow_maxima(p, s, thread - Tile::kProducers, blocks);
  }
  __syncthreads();
  if (thread < Tile::kProducers)
    producer.run(even, odd, chunks);
  else if (thread < Tile::kProducers + Tile::kMathThreads)
    multiply_values(p, s, thread - Tile::kProducers, query, blocks, chunks, first_row, first_column);
  else
    add_probabilities(s, thread - Tile::kProducers - Tile::kMathThreads, blocks, chunks);
}

}  // namespace mla
