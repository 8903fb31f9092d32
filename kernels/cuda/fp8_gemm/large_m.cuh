// The kernel for many rows: persistent CTAs in pairs, tiles of kRows tokens x kColumns rows of weights. A math warpgroup has 64 tokens of a
// tile, and kWaves parts of kN columns one after the other. A pair of CTAs shares one operand by multicast.
//
// The sum of one slice is scaled and added to fp32 registers (promotion). While a warpgroup does so, the tensor cores have the MMAs of
// another warpgroup. Whatever else a warpgroup has to do, it does while its own MMAs run.
//
// K is never split, and its slices are added in ascending order by one fp32 multiplication of scales and one fused addition each: an element
// of the result has the same bits in every tile and among any other rows.
#pragma once

#include <algorithm>
#include <numeric>

#include "product.cuh"

namespace gemm {

constexpr int kScaleSlices = 8;  // slices whose scales are copied together: 32 bytes of each row
constexpr int kMostStages = 16;
constexpr int kMostShared = 227 * 1024;

template <int kRowGroups_, int kColumnGroups_, int kWaves_, int kN_, bool kSharesTokens_>
struct LargeM {
  static constexpr int kRowGroups = kRowGroups_, kColumnGroups = kColumnGroups_, kWaves = kWaves_, kN = kN_;
  static constexpr bool kSharesTokens = kSharesTokens_;
  static constexpr int kGroups = kRowGroups * kColumnGroups, kRows = kRowGroups * 64, kColumns = kColumnGroups * kWaves * kN;
  static constexpr int kThreads = 128 * (1 + kGroups);  // one producer warpgroup, then the math warpgroups
  static constexpr int kMathRegisters = kGroups == 2 ? 232 : 152;
  static constexpr int kProducerRegisters = kGroups == 2 ? 40 : 56;
  // Shared tokens: each CTA copies every second box of 32 tokens to both. Shared weights: each copies half of the columns to both.
  static constexpr int kTokenBox = kSharesTokens ? 32 : kRows;
  static constexpr int kWeightBox = kSharesTokens && kColumns <= 256 ? kColumns : kColumns / 2;
  static constexpr int kStageBytes = (kRows + kColumns) * kSlice;
  // Tiles start at multiples of kColumns, so that blocks of 128 columns, which share a scale, end at multiples of kStep in a wave.
  static constexpr int kStep = std::gcd(kN, kWeights), kMostOffset = kWeights - std::gcd(kColumns, kWeights);
  static constexpr int kBlocks = (kMostOffset + kColumns + kWeights - 1) / kWeights;  // that a tile touches
  // A warp's results leave by the TMA in boxes of 16 rows, from shared memory under the swizzle of the box's width.
  static constexpr int kWarpColumns = kWaves * kN, kBox = std::gcd(kWarpColumns, 64);
  static constexpr int kSwizzleBits = kBox == 64 ? 7 : kBox == 32 ? 3 : 1;

  // What the math warps need besides the tiles, for up to eight slices.
  struct Chunk {
    float tokens[kScaleSlices / 4][kRows][4];
    float weights[kBlocks][kScaleSlices];
    int4 tile;  // its first row, first column, the end of its rows, and whether there is one
  };
  struct Rest {
    uint8_t out[kGroups * 4][16 * kWarpColumns * 2];
    Chunk chunks[2];
    uint64_t full[kMostStages], empty[kMostStages], chunks_full[2], chunks_empty[2];
  };
  static constexpr int kStages = std::min((kMostShared - int(sizeof(Rest))) / kStageBytes, kMostStages);
  static constexpr int kSharedBytes = kStages * kStageBytes + int(sizeof(Rest));
  static_assert(kStages >= 3 && kN % 16 == 0);
};

// The persistent tile scheduler. A unit of work is a pair of tiles: two token tiles with the same columns where weights are shared, else
// two column tiles with the same tokens. An expert's last token tile, if its number is odd, has no partner to share weights with: its
// units share nothing. The order is: expert, panel of tokens, columns, tokens within the panel, so that a panel uses the same weights
// from L2. Every warp keeps its own scheduler.
template <class Config>
struct TileScheduler {
  static constexpr int kTall = Config::kSharesTokens ? 1 : 2;  // token tiles of a unit
  static constexpr int kPanel = 8;                             // units of one column
  int expert = -1, tiles = 0;  // tiles: of tokens, of this expert
  int before = 0, units = 0;   // units of the earlier experts and of this one
  int start = 0, end = 0;     // rows of this expert
  // The tile found:
  int first, column;  // its first row and column
  bool shares;

  __device__ __forceinline__ bool find(const Product& p, int index, int rank) {
    const int columns = (p.n + Config::kColumns - 1) / Config::kColumns, wide = (columns + 1) / 2;
    while (expert < 0 || index >= before + units) {
      before += units;
      if (++expert >= p.experts) return false;
      start = p.offsets == nullptr ? 0 : p.offsets[expert];
      end = p.offsets == nullptr ? p.rows : p.offsets[expert + 1];
      tiles = (end - start + Config::kRows - 1) / Config::kRows;
      units = kTall == 1 ? tiles * wide : tiles / 2 * columns + tiles % 2 * wide;
    }
    int local = index - before, token_tile, column_tile;
    const int paired = kTall == 1 ? 0 : tiles / 2 * columns;
    shares = kTall == 1 || local < paired;
    if (kTall == 2 && shares) {
      const int panel = local / (kPanel * columns), height = min(kPanel, tiles / 2 - panel * kPanel);
      local -= panel * kPanel * columns;
      token_tile = 2 * (panel * kPanel + local % height) + rank, column_tile = local / height;
    } else {
      const int height = kTall == 1 ? tiles : 1;
      local -= paired;
      token_tile = kTall == 1 ? local % height : tiles - 1, column_tile = 2 * (local / height) + rank;
    }
    first = start + token_tile * Config::kRows, column = column_tile * Config::kColumns;
    return true;
  }
};

// The thread of the producer that copies the tiles of a and b.
template <class Config>
__device__ __forceinline__ void copy_tiles(const CUtensorMap& a_map, const CUtensorMap& b_map, const Product& p, uint32_t stages,
                                           const uint64_t* full, const uint64_t* empty) {
  constexpr bool kSharesTokens = Config::kSharesTokens;
  const int rank = cluster_rank(), clusters = gridDim.x / 2;
  TileScheduler<Config> tile;
  int stage = 0, phase = 0;
  for (int index = blockIdx.x / 2; tile.find(p, index, rank); index += clusters) {
    const int boxes = kSharesTokens ? min(Config::kRows, tile.end - tile.first + 31) / 32 : 1;
    const uint32_t bytes = boxes * (Config::kTokenBox * kSlice) + Config::kColumns * kSlice;
    for (int i = 0; i < p.slices; ++i) {
      const uint32_t barrier = shared_address(&full[stage]), tokens = stages + stage * Config::kStageBytes;
      const uint32_t weights = tokens + Config::kRows * kSlice;
      barrier_wait(shared_address(&empty[stage]), phase ^ 1);
      barrier_arrive_expect(barrier, bytes);
      if constexpr (kSharesTokens) {
        for (int box = rank; box < boxes; box += 2)
          copy_2d_to_pair(tokens + box * (32 * kSlice), &a_map, barrier, i * kSlice, tile.first + box * 32);
      } else {
        copy_2d(tokens, &a_map, barrier, i * kSlice, tile.first);
      }
      if (!kSharesTokens && tile.shares) {
        const int half = rank * Config::kWeightBox;
        copy_3d_to_pair(weights + half * kSlice, &b_map, barrier, i * kSlice, tile.column + half, tile.expert);
      } else {
        for (int box = 0; box < Config::kColumns; box += Config::kWeightBox)
          copy_3d(weights + box * kSlice, &b_map, barrier, i * kSlice, tile.column + box, tile.expert);
      }
      if (++stage == Config::kStages) stage = 0, phase ^= 1;
    }
  }
}

template <class Config, class Out>
__global__ void __launch_bounds__(Config::kThreads, 1)
    large_m_kernel(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                   const __grid_constant__ CUtensorMap out_map, const __grid_constant__ Product p, const bool vector_scales,
                   const bool bulk_stores) {
  constexpr int kGroups = Config::kGroups, kWaves = Config::kWaves, kN = Config::kN;
  extern __shared__ __align__(1024) uint8_t shared[];
  typename Config::Rest& s = *reinterpret_cast<typename Config::Rest*>(shared + Config::kStages * Config::kStageBytes);
  const uint32_t stages = shared_address(shared);
  constexpr int kScaleThreads = 96;  // the producer's warps 1 to 3

  const int rank = cluster_rank(), warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    prefetch_map(&a_map);
    prefetch_map(&b_map);
    for (int i = 0; i < Config::kStages; ++i) {
      barrier_init(shared_address(&s.full[i]), 1);
      barrier_init(shared_address(&s.empty[i]), 2 * 4 * kGroups);  // the math warps of both CTAs
    }
    for (int i = 0; i < 2; ++i) {
      barrier_init(shared_address(&s.chunks_full[i]), kScaleThreads + 1);
      barrier_init(shared_address(&s.chunks_empty[i]), 4 * kGroups);
    }
    barrier_init_fence();
  }
  cluster_sync();
  pdl_wait();

  int chunk = 0, chunk_phase = 0;
  const auto next_chunk = [&] { chunk ^= 1, chunk_phase ^= chunk == 0; };

  if (warp < 4) {
    common::shrink_registers<Config::kProducerRegisters>();
    if (warp == 0 && lane == 0) {
      copy_tiles<Config>(a_map, b_map, p, stages, s.full, s.empty);
    } else if (warp > 0) {
      const int thread = threadIdx.x - 32, blocks = (p.n + kWeights - 1) / kWeights, clusters = gridDim.x / 2;
      TileScheduler<Config> tile;
      for (int index = blockIdx.x / 2;; index += clusters) {
        const bool found = tile.find(p, index, rank);
        const float* b_scale = p.b_scale + tile.expert * p.b_scale_expert_stride;
        for (int i = 0; i < (found ? p.slices : 1); i += kScaleSlices) {
          typename Config::Chunk& to = s.chunks[chunk];
          const int count = found ? min(kScaleSlices, p.slices - i) : 0;
          barrier_wait(shared_address(&s.chunks_empty[chunk]), chunk_phase ^ 1);
          if (thread == 0) {
            to.tile = make_int4(tile.first, tile.column, tile.end, found);
            barrier_arrive(shared_address(&s.chunks_full[chunk]));
          }
          // The scales of a in their own layout: 32 bytes of each row at once, since each row takes the L1 a cycle whatever its length.
          if (vector_scales) {
            for (int piece = thread; piece < 2 * Config::kRows; piece += kScaleThreads) {
              const int row = piece / 2, part = piece % 2;
              const float* source = p.a_scale + min(tile.first + row, p.rows - 1) * p.a_scale_stride + i + 4 * part;
              if (4 * part < count) common::copy16<0>(shared_address(to.tokens[part][row]), source, 16);
            }
          } else {
            for (int piece = thread; piece < kScaleSlices * Config::kRows; piece += kScaleThreads) {
              const int row = piece / kScaleSlices, slice = piece % kScaleSlices;
              const float* source = p.a_scale + min(tile.first + row, p.rows - 1) * p.a_scale_stride + i + slice;
              if (slice < count) common::copy4(shared_address(&to.tokens[slice / 4][row][slice % 4]), source);
            }
          }
          for (int piece = thread; piece < kScaleSlices * Config::kBlocks; piece += kScaleThreads) {
            const int block = piece / kScaleSlices, slice = piece % kScaleSlices;
            const float* source = b_scale + min(tile.column / kWeights + block, blocks - 1) * p.b_scale_stride + i + slice;
            if (slice < count) common::copy4(shared_address(&to.weights[block][slice]), source);
          }
          common::barrier_arrive_after_copies(shared_address(&s.chunks_full[chunk]));
          next_chunk();
        }
        if (!found) break;
      }
    }
    __syncwarp();
  } else {
    common::grow_registers<Config::kMathRegisters>();
    // The first row of this warp in the tile, and the first column of its warpgroup.
    const int group = (warp / 4 - 1) % Config::kRowGroups, row = group * 64 + warp % 4 * 16;
    const int begin = (warp / 4 - 1) / Config::kRowGroups * Config::kWarpColumns;
    const uint32_t release_to = peer_address(shared_address(s.empty), lane % 2);  // two lanes signal the two CTAs
    // Low words of the operands' descriptors in stage 0.
    const uint32_t token_word = common::Tile::rows(stages + group * (64 * kSlice)).low;
    const uint32_t weight_word = common::Tile::rows(stages + (Config::kRows + begin) * kSlice).low;
    const uint8_t* staged = s.out[warp - 4];
    int stage = 0, phase = 0;
    int held = 0;  // the stage that the MMAs in flight read
    const auto wait_full = [&] { barrier_wait(shared_address(&s.full[stage]), phase); };
    const auto next_stage = [&] {
      if (++stage == Config::kStages) stage = 0, phase ^= 1;
    };
    const auto release = [&] {
      __syncwarp();
      if (lane < 2) barrier_arrive_remote(release_to + held * 8);
      if (++held == Config::kStages) held = 0;
    };
    const auto wait_chunk = [&] { barrier_wait(shared_address(&s.chunks_full[chunk]), chunk_phase); };
    const auto release_chunk = [&] {
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&s.chunks_empty[chunk]));
      next_chunk();
    };
    for (;;) {
      wait_chunk();
      const int4 header = s.chunks[chunk].tile;
      if (header.w == 0) break;
      const int first = header.x + row, column = header.y + begin, end = header.z;  // of this warp
      if (header.x + group * 64 >= end || column >= p.n) {  // this warpgroup has no valid results
        for (int i = 0; i < p.slices; ++i) {
          if (i > 0 && i % kScaleSlices == 0) wait_chunk();
          if (i % kScaleSlices == kScaleSlices - 1 || i == p.slices - 1) release_chunk();
          wait_full();
          next_stage();
          release();
        }
        continue;
      }
      float total[kWaves][kN / 2], part[kN / 2];
#pragma unroll
      for (int w = 0; w < kWaves; ++w)
#pragma unroll
        for (float& x : total[w]) x = 0.0f;

      const auto multiply = [&](float(&d)[kN / 2], int w) {
        const uint32_t offset = stage * (Config::kStageBytes / 16);
        multiply_words<kN>(d, token_word + offset, weight_word + offset + w * (kN * kSlice / 16));
      };
      // The scales of a slice of the chunk: of this thread's two rows, and of the block where each wave begins and of the next one.
      constexpr int kTouched = Config::kMostOffset == 0 && kN == kWeights ? 1 : 2;
      float a_scale[2], b_scale[kWaves][kTouched];
      const auto load_scales = [&](int slice) {
        const typename Config::Chunk& from = s.chunks[chunk];
#pragma unroll
        for (int x = 0; x < 2; ++x) a_scale[x] = from.tokens[slice / 4][row + lane / 4 + 8 * x][slice % 4];
#pragma unroll
        for (int w = 0; w < kWaves; ++w) {
          const int block = Config::kMostOffset == 0 ? (begin + w * kN) / kWeights : (header.y % kWeights + begin + w * kN) / kWeights;
#pragma unroll
          for (int x = 0; x < kTouched; ++x) b_scale[w][x] = from.weights[min(block + x, Config::kBlocks - 1)][slice];
        }
      };
      const auto promote = [&](const float(&d)[kN / 2], int w) {
        const int first_block = kWeights - (column + w * kN) % kWeights;  // columns of the wave in its first block
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
          const float b = kTouched == 1 || j * 8 / Config::kStep * Config::kStep < first_block ? b_scale[w][0] : b_scale[w][kTouched - 1];
          const float s0 = __fmul_rn(a_scale[0], b), s1 = __fmul_rn(a_scale[1], b);
#pragma unroll
          for (int x = 0; x < 4; ++x) total[w][4 * j + x] = __fmaf_rn(d[4 * j + x], x < 2 ? s0 : s1, total[w][4 * j + x]);
        }
      };

      wait_full();
      for (int base = 0; base < p.slices; base += kScaleSlices) {
        if (base > 0) wait_chunk();
#pragma unroll
        for (int x = 0; x < kScaleSlices; ++x) {
          const int left = p.slices - base - x;
          if (left <= 0) break;
#pragma unroll
          for (int w = 0; w < kWaves; ++w) {
            multiply(part, w);
            if (w == 0) load_scales(x);
            if (w == kWaves - 1) {
              next_stage();
              if (left > 1) wait_full();
            }
            mma_wait<0>();
            common::hold(part);
            if (w == kWaves - 1) release();
            promote(part, w);
          }
        }
        release_chunk();
      }

      Out* out = static_cast<Out*>(p.out);
      if constexpr (std::is_same_v<Out, float>) {
#pragma unroll
        for (int w = 0; w < kWaves; ++w)
#pragma unroll
          for (int j = 0; j < kN / 2; ++j) {
            const int r = first + lane / 4 + j / 2 % 2 * 8, c = column + w * kN + j / 4 * 8 + lane % 4 * 2 + j % 2;
            if (r < end && c < p.n) out[int64_t(r) * p.n + c] = total[w][j];
          }
      } else {
        // Each warp stages its 16 rows in its own shared memory once the TMA has read the previous ones.
        constexpr int kRowBytes = Config::kBox * 2, kBoxBytes = 16 * kRowBytes;
        const auto place = [&](int r, int piece) {  // of 16 bytes: box, row and column under the swizzle
          const uint32_t linear = r * kRowBytes + piece * 16 % kRowBytes;
          return piece * 16 / kRowBytes * kBoxBytes + (linear ^ (linear >> 7 & Config::kSwizzleBits) << 4);
        };
        if (lane == 0) wait_bulk_reads();
        __syncwarp();
#pragma unroll
        for (int w = 0; w < kWaves; ++w)
#pragma unroll
          for (int j = 0; j < kN / 16; ++j) {
            const float* x = total[w] + 8 * j;
            common::store_matrices(shared_address(staged) + place(lane % 16, w * kN / 8 + 2 * j + lane / 16),
                                   common::pack<__nv_bfloat16>(x[0], x[1]), common::pack<__nv_bfloat16>(x[2], x[3]),
                                   common::pack<__nv_bfloat16>(x[4], x[5]), common::pack<__nv_bfloat16>(x[6], x[7]));
          }
        // The TMA leaves out what is past the last row of the matrix, not what is past an expert's.
        if (bulk_stores && (p.offsets == nullptr || first + 16 <= end)) {
          common::fence_async_proxy();
          __syncwarp();
          if (lane == 0) {
#pragma unroll
            for (int box = 0; box < Config::kWarpColumns / Config::kBox; ++box)
              store_2d(&out_map, shared_address(staged) + box * kBoxBytes, column + box * Config::kBox, first);
            commit_bulk_stores();
          }
        } else {
          __syncwarp();
          constexpr int kPieces = Config::kWarpColumns / 8;  // of a row
          for (int x = lane; x < 16 * kPieces; x += 32) {
            const int r = x / kPieces, c = column + x % kPieces * 8;
            if (first + r >= end || c >= p.n) continue;
            const uint8_t* from = staged + place(r, x % kPieces);
            Out* to = out + int64_t(first + r) * p.n + c;
            if (p.n % 8 == 0) {
              *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
            } else {
              for (int y = 0; y < min(8, p.n - c); ++y) to[y] = reinterpret_cast<const Out*>(from)[y];
            }
          }
          __syncwarp();
        }
      }
    }
    if (lane == 0) wait_bulk_stores();
  }
  __syncwarp();
  pdl_launch_dependents();
  cluster_sync();  // no CTA exits while another still signals its barriers
}

}  // namespace gemm
