// The tiles of the kernel for many rows, and which CTA computes which tile.
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

// What the two CTAs of a pair share by multicast. Without a partner a CTA waits for nobody, which is faster where all tiles run at once.
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

  // What the math warps need besides the tiles, for up to eight slices.
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

// The persistent tile scheduler. A unit of work is a pair of tiles: two token tiles with the same columns where weights are shared, else
// two column tiles with the same tokens. An expert's last token tile, if its number is odd, has no partner to share weights with: its
// units share nothing. The order is: expert, panel of tokens, columns, tokens within the panel, so that a panel uses the same weights
// from L2. Every warp keeps its own scheduler.
template <class Config>
struct TileScheduler {
  static constexpr int kCluster = Config::kCluster;
  static constexpr int kTall = Config::kShares == Shares::kWeights ? 2 : 1;  // token tiles of a unit
  static constexpr int kPanel = 8;                             // units of one column
  int expert = -1, tiles = 0;  // tiles: of tokens, of this expert
  int before = 0, units = 0;   // units of the earlier experts and of this one
  int start = 0, end = 0;     // rows of this expert
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
      token_tile = kTall == 1 ? local % height : tiles - 1, column_tile = kCluster * (local / height) + rank;
    }
    first = start + token_tile * Config::kRows, column = column_tile * Config::kColumns;
    return true;
  }
};

// Which units of work a pair of CTAs, or a CTA alone, computes one after the other: every so many of them, or, if p.claimed is given to
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
  // After the first turn without a unit, before the CTA ends: the last claimed unit, which nobody uses, has arrived.
  __device__ __forceinline__ void drain() const {
    if (turn > 0 && claims()) wait(turn + 1);
  }
};

}  // namespace gemm
