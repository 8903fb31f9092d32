// The tiles of the kernel for many rows, which CTA computes which tile, the warps that copy operands, and the stores of results.
#pragma once

#include <algorithm>
#include <numeric>

#include "../common/cluster.cuh"
#include "product.cuh"

namespace gemm {

constexpr int kScaleSlices = 8;  // slices whose scales are copied together: 32 bytes of each row
constexpr int kMostStages = 16;
constexpr int kClaims = 16;  // claimed units that a CTA has room for; its warps are fewer tiles apart
constexpr int kMostShared = 227 * 1024;

// The operand that the two CTAs of a pair share by multicast. Without a partner a CTA waits for no one, which is faster where all tiles run at once.
enum class Shares { kNothing, kTokens, kWeights };

// kOverlaps: the MMAs of the next part run while one is added, which takes registers for two parts. kStaged_, kBox_: boxes of results that
// a warp stages, and their columns; 0: all of its columns in the widest boxes.
template <int kRowGroups_, int kColumnGroups_, int kWaves_, int kN_, Shares kShares_, bool kOverlaps_ = false, int kStaged_ = 0, int kBox_ = 0>
struct LargeM {
  static constexpr int kRowGroups = kRowGroups_, kColumnGroups = kColumnGroups_, kWaves = kWaves_, kN = kN_;
  static constexpr Shares kShares = kShares_;
  static constexpr bool kOverlaps = kOverlaps_;
  static constexpr int kCluster = kShares == Shares::kNothing ? 1 : 2;
  static constexpr int kGroups = kRowGroups * kColumnGroups, kRows = kRowGroups * 64, kColumns = kColumnGroups * kWaves * kN;
  static constexpr int kThreads = 128 * (1 + kGroups);  // one producer warpgroup, then the math warpgroups
  // With three math warpgroups the next slice is awaited, and its scales loaded, while one is added, so that nothing else delays the next
  // MMAs; with fewer while the slice's own MMAs run.
  static constexpr bool kAwaitsWhileAdding = kGroups > 2;
  static constexpr bool kMovesRegisters = kGroups > 1;  // from the producer; a single math warpgroup has enough
  static constexpr int kMathRegisters = kGroups <= 2 ? 232 : 152;
  static constexpr int kProducerRegisters = kGroups <= 2 ? 40 : 56;
  // Shared tokens: each CTA copies half of the tokens to both, in one box of as many rows as there are, rounded up to kBoxStep. Shared
  // weights: each copies half of the columns to both.
  static constexpr int kBoxStep = kShares == Shares::kTokens ? 8 : kRows, kTokenMaps = kShares == Shares::kTokens ? kRows / 2 / kBoxStep : 1;
  static constexpr int kWeightBox = kShares != Shares::kWeights && kColumns <= 256 ? kColumns : kColumns / 2;
  static constexpr int kStageBytes = (kRows + kColumns) * kSlice;
  // Tiles start at multiples of kColumns, so that blocks of 128 columns, which share a scale, end at multiples of kStep in a wave.
  static constexpr int kStep = std::gcd(kN, kWeights), kMostOffset = kWeights - std::gcd(kColumns, kWeights);
  static constexpr int kBlocks = (kMostOffset + kColumns + kWeights - 1) / kWeights;  // that a tile touches
  // A warp's results leave by the TMA in boxes of 16 rows, from shared memory under the swizzle of the box's width.
  static constexpr int kWarpColumns = kWaves * kN, kBox = kBox_ ? kBox_ : std::gcd(kWarpColumns, 64), kBoxes = kWarpColumns / kBox;
  static constexpr int kStaged = kStaged_ ? kStaged_ : kBoxes;
  static constexpr int kSwizzleBits = kBox == 64 ? 7 : kBox == 32 ? 3 : 1;
  // Chunks of scales under way. With small tiles a chunk is used up sooner than memory delivers the next.
  static constexpr int kChunks = kRows <= 128 ? 4 : 2;

  // Scales for the math warps, for up to eight slices.
  struct Chunk {
    float tokens[kScaleSlices / 4][kRows][4];
    float weights[kBlocks][kScaleSlices];
    int4 tile;  // its first row, first column, the end of its rows, and whether there is one
  };
  struct Rest {
    uint8_t out[kGroups * 4][kStaged * 16 * kBox * 2];
    Chunk chunks[kChunks];
    int claimed[kClaims];
    uint64_t claims_full[kClaims];
    uint64_t full[kMostStages], empty[kMostStages], chunks_full[kChunks], chunks_empty[kChunks];
  };
  static constexpr int kStages = std::min((kMostShared - int(sizeof(Rest))) / kStageBytes, kMostStages);
  static constexpr int kSharedBytes = kStages * kStageBytes + int(sizeof(Rest));
  static_assert(kStages >= 3 && kN % 16 == 0 && kWarpColumns % kBox == 0 && kBoxes % kStaged == 0);
};

// The maps of the tokens: number i has boxes of (i + 1) * kBoxStep rows.
template <class Config>
struct TokenMaps {
  CUtensorMap maps[Config::kTokenMaps];
};

// The persistent tile scheduler. A unit of work is a tile, or for a pair of CTAs two tiles: two token tiles with the same columns where
// weights are shared, else two column tiles with the same tokens. An expert's last token tile, if its number is odd, has no partner to share
// weights with: its units share nothing. Where weights are shared the order is: expert, panel of tokens, columns, tokens within the panel, so
// that a panel uses the same weights from L2; otherwise: expert, columns, tokens. Every warp keeps its own scheduler.
template <class Config>
struct TileScheduler {
  static constexpr int kCluster = Config::kCluster;
  static constexpr int kTall = Config::kShares == Shares::kWeights ? 2 : 1;  // token tiles of a unit
  static constexpr int kPanel = 8;                             // units of one column
  int expert = -1, tiles = 0;  // tiles: of tokens, of this expert; none if its rows are not computed
  int before = 0, units = 0;   // units of the earlier experts and of this one
  int start = 0, end = 0;     // rows of this expert
  int weight = 0;             // of this expert
  // The tile found:
  int first, column;  // its first row and column
  bool shares;

  __device__ __forceinline__ bool find(const Product& p, int index, int rank) {
    const int columns = (p.n + Config::kColumns - 1) / Config::kColumns, wide = (columns + kCluster - 1) / kCluster;
    while (expert < 0 || index >= before + units) {
      before += units;
      if (++expert >= p.experts) return false;
      start = p.offsets == nullptr ? 0 : p.offsets[expert];
      end = p.offsets == nullptr ? p.rows : p.offsets[expert + 1];
      weight = weight_of(p, expert);
      tiles = weight < 0 ? 0 : (end - start + Config::kRows - 1) / Config::kRows;
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
      token_tile = kTall == 1 ? local % height : tiles - 1, column_tile = kCluster * (local / height) + rank;
    }
    first = start + token_tile * Config::kRows, column = column_tile * Config::kColumns;
    return true;
  }
};

// Which units of work a pair of CTAs, or a single CTA, computes one after the other: at a fixed distance, or, if p.claimed is given to
// pairs that share tokens, two of its own and then those that it claims as they come. So all pairs end at about the same time, although
// tiles with more rows, and multiprocessors farther from the memory, take longer. A thread of the first CTA claims, two turns ahead, and
// pushes the unit to both. Every warp keeps its own queue.
template <class Config>
struct UnitQueue {
  const Product& p;
  typename Config::Rest& s;
  int clusters = gridDim.x / Config::kCluster, index = blockIdx.x / Config::kCluster;  // the unit
  int turn = 0;

  __device__ __forceinline__ bool claims() const { return Config::kShares == Shares::kTokens && p.claimed != nullptr; }
  __device__ __forceinline__ uint32_t barrier(int of) const { return shared_address(&s.claims_full[of % kClaims]); }
  __device__ __forceinline__ void wait(int of) const { barrier_wait(barrier(of), (of - 2) / kClaims % 2); }
  __device__ __forceinline__ void next() {
    ++turn;
    index += clusters;
    if (turn < 2 || !claims()) return;
    wait(turn);
    index = s.claimed[turn % kClaims];
  }
  // By one thread of each CTA when a turn begins: claims the unit of the turn after the next. Its barrier then waits for the unit.
  __device__ __forceinline__ int claim(int rank) const {
    if (!claims()) return 0;
    barrier_arrive_expect(barrier(turn + 2), sizeof(int));
    return rank == 0 ? 2 * clusters + atomicAdd(p.claimed, 1) : 0;
  }
  // By the same thread when it ends, so that it need not wait for the answer before.
  __device__ __forceinline__ void publish(int rank, int unit) const {
    if (!claims() || rank != 0) return;
    for (int to = 0; to < Config::kCluster; ++to)
      common::push(reinterpret_cast<const float*>(&s.claimed[(turn + 2) % kClaims]), __int_as_float(unit), barrier(turn + 2), to);
  }
  // After the first turn without a unit, before the CTA ends: the last claimed unit, which no CTA uses, has arrived.
  __device__ __forceinline__ void drain() const {
    if (turn > 0 && claims()) wait(turn + 1);
  }
};

// ---- The copying warps of the kernel for many rows.

constexpr int kScaleThreads = 96;  // the producer's warps 1 to 3

// Copies this CTA's share of slice `slice` of a tile's tokens or of its weights. `box`: how many tokens its share has.
template <class Config>
__device__ __forceinline__ void copy_tokens(const CUtensorMap& map, const TileScheduler<Config>& tile, uint32_t to, uint32_t barrier, int slice,
                                            int rank, int box) {
  if constexpr (Config::kShares == Shares::kTokens) {
    copy_2d_to_pair(to + rank * box * kSlice, &map, barrier, slice * kSlice, tile.first + rank * box);
  } else {
    copy_2d(to, &map, barrier, slice * kSlice, tile.first);
  }
}
template <class Config>
__device__ __forceinline__ void copy_weights(const CUtensorMap& map, const TileScheduler<Config>& tile, uint32_t to, uint32_t barrier,
                                             int slice, int rank) {
  if (Config::kShares == Shares::kWeights && tile.shares) {
    const int half = rank * Config::kWeightBox;
    copy_3d_to_pair(to + half * kSlice, &map, barrier, slice * kSlice, tile.column + half, tile.weight);
    return;
  }
  for (int box = 0; box < Config::kColumns; box += Config::kWeightBox)
    copy_3d(to + box * kSlice, &map, barrier, slice * kSlice, tile.column + box, tile.weight);
}

// The thread of the producer that copies the tiles of a and b.
template <class Config>
__device__ __forceinline__ void copy_tiles(const TokenMaps<Config>& a_maps, const CUtensorMap& b_map, const Product& p, int rank, uint32_t stages,
                                           typename Config::Rest& s) {
  UnitQueue<Config> units = {p, s};
  TileScheduler<Config> tile;
  int stage = 0, phase = 0;
  for (; tile.find(p, units.index, rank); units.next()) {
    constexpr int kShared = Config::kShares == Shares::kTokens ? 2 : 1, kStep = Config::kBoxStep;
    const int steps = (min(Config::kRows, tile.end - tile.first) + kShared * kStep - 1) / (kShared * kStep), box = steps * kStep;
    const CUtensorMap& a_map = a_maps.maps[Config::kTokenMaps == 1 ? 0 : steps - 1];
    const uint32_t bytes = (kShared * box + Config::kColumns) * kSlice;
    for (int i = 0; i < p.slices; ++i) {
      const uint32_t barrier = shared_address(&s.full[stage]), tokens = stages + stage * Config::kStageBytes;
      barrier_wait(shared_address(&s.empty[stage]), phase ^ 1);
      barrier_arrive_expect(barrier, bytes);
      copy_tokens(a_map, tile, tokens, barrier, i, rank, box);
      copy_weights(b_map, tile, tokens + Config::kRows * kSlice, barrier, i, rank);
      if (++stage == Config::kStages) stage = 0, phase ^= 1;
    }
  }
}

// The warps that copy scales, and tell the math warps which tile they are of.
template <class Config>
__device__ __forceinline__ void copy_scales(const Product& p, bool vector_scales, int rank, typename Config::Rest& s) {
  const int thread = threadIdx.x - 32, blocks = (p.n + kWeights - 1) / kWeights;
  UnitQueue<Config> units = {p, s};
  TileScheduler<Config> tile;
  int chunk = 0, phase = 0;
  for (;; units.next()) {
    const bool found = tile.find(p, units.index, rank);
    const int claimed = found && thread == 0 ? units.claim(rank) : 0;
    const float* b_scale = p.b_scale + tile.weight * p.b_scale_expert_stride;
    for (int i = 0; i < (found ? p.slices : 1); i += kScaleSlices) {
      typename Config::Chunk& to = s.chunks[chunk];
      const int count = found ? min(kScaleSlices, p.slices - i) : 0;
      const int rows = found ? tile.end - tile.first : 0;  // those past the end are not read
      barrier_wait(shared_address(&s.chunks_empty[chunk]), phase ^ 1);
      if (thread == 0) {
        to.tile = make_int4(tile.first, tile.column, tile.end, found);
        barrier_arrive(shared_address(&s.chunks_full[chunk]));
      }
      // The scales of a in their own layout: 32 bytes of each row at once, since each row takes the L1 a cycle whatever its length.
      if (vector_scales) {
        for (int piece = thread; piece < 2 * Config::kRows; piece += kScaleThreads) {
          const int row = piece / 2, part = piece % 2;
          const float* source = p.a_scale + (tile.first + row) * p.a_scale_stride + i + 4 * part;
          if (row < rows && 4 * part < count) common::copy16<0>(shared_address(to.tokens[part][row]), source, 16);
        }
      } else {
        for (int piece = thread; piece < kScaleSlices * Config::kRows; piece += kScaleThreads) {
          const int row = piece / kScaleSlices, slice = piece % kScaleSlices;
          const float* source = p.a_scale + (tile.first + row) * p.a_scale_stride + i + slice;
          if (row < rows && slice < count)
            common::copy4(shared_address(&to.tokens[slice / 4][row][slice % 4]), source);
        }
      }
      for (int piece = thread; piece < kScaleSlices * Config::kBlocks; piece += kScaleThreads) {
        const int block = piece / kScaleSlices, slice = piece % kScaleSlices;
        const float* source = b_scale + min(tile.column / kWeights + block, blocks - 1) * p.b_scale_stride + i + slice;
        if (slice < count) common::copy4(shared_address(&to.weights[block][slice]), source);
      }
      common::barrier_arrive_after_copies(shared_address(&s.chunks_full[chunk]));
      if (++chunk == Config::kChunks) chunk = 0, phase ^= 1;
    }
    if (!found) return units.drain();
    if (thread == 0) units.publish(rank, claimed);
  }
}

// ---- How the math warps of the kernel for many rows write their results.

// A warp's 16 rows from `first` on and its columns from `column` on, as the accumulators of MMAs hold them; rows from `end` on are left out.
// bf16 goes through `staged`, shared memory of this warp, once the TMA has read what was there; it is written when the warp calls
// wait_bulk_stores.
template <class Config, class Out>
__device__ __forceinline__ void store_results(const float (&total)[Config::kWaves][Config::kN / 2], const CUtensorMap& out_map,
                                              const Product& p, bool bulk_stores, const uint8_t* staged, int first, int end, int column) {
  constexpr int kWaves = Config::kWaves, kN = Config::kN;
  const int lane = threadIdx.x % 32;
  Out* out = static_cast<Out*>(p.out);
  if constexpr (std::is_same_v<Out, float>) {
#pragma unroll
    for (int w = 0; w < kWaves; ++w)
#pragma unroll
      for (int j = 0; j < kN / 2; ++j) {
        const int r = first + lane / 4 + j / 2 % 2 * 8, c = column + w * kN + j / 4 * 8 + lane % 4 * 2 + j % 2;
        if (r < end && c < p.n) out[int64_t(r) * p.n + c] = total[w][j];
      }
    return;
  }
  // The TMA leaves out what is past the last row of the matrix, not what is past an expert's.
  const bool bulk = bulk_stores && (p.offsets == nullptr || first + 16 <= end);
  constexpr int kBox = Config::kBox, kStaged = Config::kStaged, kRowBytes = kBox * 2, kBoxBytes = 16 * kRowBytes;
  const auto place = [&](int box, int r, int piece) {  // of 16 bytes: box, row and column under the swizzle
    const uint32_t linear = r * kRowBytes + piece * 16;
    return box % kStaged * kBoxBytes + (linear ^ (linear >> 7 & Config::kSwizzleBits) << 4);
  };
  constexpr int kBatch = kStaged == Config::kBoxes ? kStaged : 1;  // boxes that leave together: all, or one after the other
#pragma unroll
  for (int begin = 0; begin < Config::kBoxes; begin += kBatch) {
    if (lane == 0) {
      if (bulk)
        wait_bulk_reads<kStaged / kBatch - 1>();
      else
        wait_bulk_reads<0>();
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kBatch * kBox / 16; ++j) {
      const int at = begin * kBox + j * 16;  // of the warp's columns
      const float* x = total[at / kN] + at % kN / 2;
      common::store_matrices(shared_address(staged) + place(at / kBox, lane % 16, at % kBox / 8 + lane / 16),
                             common::pack<__nv_bfloat16>(x[0], x[1]), common::pack<__nv_bfloat16>(x[2], x[3]),
                             common::pack<__nv_bfloat16>(x[4], x[5]), common::pack<__nv_bfloat16>(x[6], x[7]));
    }
    if (bulk) {
      common::fence_async_proxy();
      __syncwarp();
      if (lane == 0) {
#pragma unroll
        for (int box = begin; box < begin + kBatch; ++box)
          store_2d(&out_map, shared_address(staged) + box % kStaged * kBoxBytes, column + box * kBox, first);
        commit_bulk_stores();
      }
      continue;
    }
    __syncwarp();
    constexpr int kPieces = kBatch * kBox / 8;  // of a row
    for (int x = lane; x < 16 * kPieces; x += 32) {
      const int r = x / kPieces, offset = begin * kBox + x % kPieces * 8, c = column + offset;
      if (first + r >= end || c >= p.n) continue;
      const uint8_t* from = staged + place(offset / kBox, r, offset % kBox / 8);
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

}  // namespace gemm
