// The tiles of the kernel for many rows, and which CTA computes which tile.
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

}  // namespace gemm
