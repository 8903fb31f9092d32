// FP8 sparse attention of few queries: the tile of output that a CTA computes, and the warps that bring its keys.
#pragma once

#include "operands.cuh"

namespace mla {

// The outputs of a CTA: kTileRows rows and kColumns columns. Its first warps, the producers, bring the keys in chunks of kChunk, two at a time:
// they convert values and exponentiate scores. Of the next warps each multiplies 16 rows and 16 columns, and the last ones add probabilities.
template <int kTileRows_, int kColumns_, int kChunk_>
struct ValueTile {
  static constexpr int kTileRows = kTileRows_, kColumns = kColumns_, kChunk = kChunk_, kBlocks = kChunk / kBlock;
  static constexpr int kColumnWarps = kColumns / 16, kProducers = 256;
  static constexpr int kMathThreads = kTileRows * 2 * kColumnWarps, kSumThreads = kTileRows * 4, kConsumers = kMathThreads + kSumThreads;
  static constexpr int kThreads = kProducers + kConsumers;
  static constexpr int kPieces = kColumns / 16;  // of 16 bytes that a CTA reads of a key
  static constexpr int kLoads = kChunk * kPieces / kProducers;
  static constexpr int kWarpKeys = 32 / kPieces;  // that a warp reads at once: eight neighbours store pieces of different keys
  static constexpr int kProbabilityPitch = (kChunk + 8) * 2, kValuePitch = (kColumns + 8) * 2;
  static constexpr int kItems = kTileRows * 4 * kBlocks / kProducers;  // quarters of a row's block that a producer exponentiates
  static_assert(kChunk * kPieces % kProducers == 0 && kTileRows * 4 * kBlocks % kProducers == 0 && kThreads <= 1024);
};

template <class Tile>
struct ValueMemory {
  static constexpr int kTileRows = Tile::kTileRows;
  uint8_t probabilities[2][kTileRows * Tile::kProbabilityPitch];
  uint8_t values[2][Tile::kChunk * Tile::kValuePitch];
  float reference[kTileRows][kMostBlocks + 1];   // of each block; the maxima before that
  float factor[kTileRows][kMostBlocks + 1];      // what sums and outputs are multiplied by before a block is added
  float added[2][Tile::kBlocks][kTileRows * 4];  // a block's sum of probabilities, by the lanes of a quad
  float total[kTileRows], top[kTileRows], last[kTileRows];
  uint32_t records[];  // where those of the query start
};

// Named barriers: a chunk is there, or its place is free, for even chunks, and with the next number for odd ones; the sums are there.
constexpr int kChunkFull = 1, kChunkFree = 3, kTotals = 5;

// What a producer has loaded of a chunk.
template <class Tile>
struct Loaded {
  uint4 bytes[Tile::kLoads];
  float scales[Tile::kLoads];
  float4 scores[Tile::kItems][4];
};

template <class Tile>
struct ValueProducer {
  static constexpr int kTileRows = Tile::kTileRows, kProducers = Tile::kProducers;
  const Problem& p;
  const Scratch& scratch;
  ValueMemory<Tile>& s;
  int query, blocks, first_row, first_column;

  // Of this thread's i-th load.
  static __device__ __forceinline__ int key_of(int i) {
    return (threadIdx.x / 32 + i * (kProducers / 32)) * Tile::kWarpKeys + threadIdx.x % Tile::kWarpKeys;
  }
  static __device__ __forceinline__ int piece() { return threadIdx.x % 32 / Tile::kWarpKeys; }

  // `chunk` may be past the end. Lengths, indices and the cache are older than the scores, whose kernel lets this one start after it waited
  // for them.
  __device__ __forceinline__ void load_values(Loaded<Tile>& of, int chunk) const {
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
  __device__ __forceinline__ void load_scores(Loaded<Tile>& of, int chunk) const {
#pragma unroll
    for (int x = 0; x < Tile::kItems; ++x) {
      const int i = threadIdx.x + x * kProducers, row = first_row + i / 4 % kTileRows, block = chunk * Tile::kBlocks + i / (4 * kTileRows);
      if (block >= blocks || row >= p.rows) continue;
      const float* from = scratch.scores + (int64_t(query) * p.rows + row) * scratch.width + block * kBlock + (i & 3) * 16;
#pragma unroll
      for (int j = 0; j < 4; ++j) of.scores[x][j] = __ldcg(reinterpret_cast<const float4*>(from) + j);
    }
  }
  __device__ __forceinline__ void store_values(const Loaded<Tile>& of, int chunk) const {
    const uint32_t values = shared_address(s.values[chunk & 1]);
#pragma unroll
    for (int i = 0; i < Tile::kLoads; ++i) {
      convert(of.bytes[i], of.scales[i], values + key_of(i) * Tile::kValuePitch + piece() * 32);
    }
  }
  __device__ __forceinline__ void store_probabilities(const Loaded<Tile>& of, int chunk) const {
#pragma unroll
    for (int x = 0; x < Tile::kItems; ++x) {
      const int i = threadIdx.x + x * kProducers, row = i / 4 % kTileRows, here = i / (4 * kTileRows), block = chunk * Tile::kBlocks + here;
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
  // Values of the first two chunks are stored, scores are loaded.
  __device__ __forceinline__ void run(Loaded<Tile>& even, Loaded<Tile>& odd, int chunks) const {
    const auto bring = [&](Loaded<Tile>& of, int chunk) {
      if (chunk >= 2) {
        named_sync(kChunkFree + (chunk & 1), Tile::kThreads);
        store_values(of, chunk);
      }
      store_probabilities(of, chunk);
      named_arrive(kChunkFull + (chunk & 1), Tile::kThreads);
      if (chunk + 2 < chunks) {
        load_values(of, chunk + 2);
        load_scores(of, chunk + 2);
      }
    };
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk += 2) {
      bring(even, chunk);
      if (chunk + 1 < chunks) bring(odd, chunk + 1);
    }
  }
};

}  // namespace mla
