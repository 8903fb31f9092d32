// The parts that the warpgroups of the attention core share: tiles, barriers, and the loading of queries.
#pragma once

#include "problem.cuh"
#include "schedule.cuh"
#include "../common/ptx.cuh"

namespace mla {

constexpr int kTile = 8192;  // bytes: 64 rows x 64 columns
constexpr int kTiles = 9;    // of a block of keys; 0-3 are the left half, 4-8 the right half and rope
constexpr int kLeftTiles = 4;
constexpr int kThreads = 384;
// Named barriers: the probabilities of even blocks, and with the next number of odd ones; the same two for their second halves; the
// sums of an item; the producer's warps.
constexpr int kHandover = 1, kHandoverRest = 4, kSums = 3, kTogether = 6;

struct SharedMemory {
  uint8_t q[kTiles * kTile];
  uint8_t k[2][kTiles * kTile];  // P of the even block takes k[0]'s rope tile, which is dead once its scores are done
  uint8_t p1[kTile];
  float reference[2][kRows];
  float sum[2][kRows];
  float top[2][kRows];
  int32_t indices[4][32];  // of the FP8 producer's warps
  uint64_t mask[2];
  uint64_t full[2][2], empty[2][2];  // [block parity][left, right]
  uint64_t mask_full[2];
  uint64_t q_full, q_empty;
  uint64_t tile_full[2][kTiles];  // instead of `full` where every tile has its own barrier
  uint64_t last_copied;           // the last block of a context, before values past its end become zeros
};
static_assert(sizeof(SharedMemory) <= 232448);

// The barriers that the producer of a storage needs.
struct Arrivals {
  uint32_t full[2], mask, q;
};

template <Lookup kLookup_, Storage kStorage_, class Element_, bool kPair_, class Order_, Planned kPlanned_ = Planned::kPerhaps,
          bool kTileBarriers_ = false>
struct Config {
  using Order = Order_;
  static constexpr bool kPlanned = kPlanned_ != Planned::kNever, kAlwaysPlanned = kPlanned_ == Planned::kAlways,
                        kEqual = kPlanned_ == Planned::kEqual;
  using Work = Items<kLookup_, kPlanned_>;
  static constexpr Lookup kLookup = kLookup_;
  static constexpr Storage kStorage = kStorage_;
  using Element = Element_;
  static constexpr bool kPair = kPair_;
  // True: scores wait for each tile of a block. False: for the halves of the block.
  static constexpr bool kTileBarriers = kTileBarriers_;
  // Indices are slots of rows without pages between them, and rows of Q are heads of one token.
  static constexpr bool kLinear = kLookup_ == Lookup::kIndices && kStorage_ == Storage::kRows;
  static constexpr bool kOneToken = kLookup_ != Lookup::kPages;
  static constexpr int kLocalRows = kPair ? kBlock / 2 : kBlock;  // rows of a block that this CTA brings
};

// Rows of q into shared memory by four warps; zeros beyond the last row.
template <class C>
__device__ __forceinline__ void load_queries(const Problem& p, SharedMemory& s, int query, int first_row, int warp) {
  using Element = typename C::Element;
  const int lane = threadIdx.x & 31, chunk = lane & 7;
  for (int r = warp * 4 + lane / 8; r < kRows; r += 16) {
    const int row = first_row + r;
    const bool valid = row < p.rows;
    const int fresh = valid && !C::kOneToken ? row / p.heads : 0, head = valid ? row - fresh * p.heads : 0;
    const Element* latent = static_cast<const Element*>(p.q) + query * p.q_stride + fresh * p.q_new_stride +
                            head * p.q_head_stride + chunk * 8;
    const Element* rope = static_cast<const Element*>(p.q_rope) + query * p.q_rope_stride + fresh * p.q_new_stride +
                          head * p.q_rope_head_stride + chunk * 8;
    const uint32_t target = opaque(shared_address(s.q) + r * 128 + ((chunk ^ (r & 7)) << 4));
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      copy16<kEvictFirst>(target + tile * kTile, tile < 8 ? latent + tile * 64 : rope, valid ? 16 : 0);
  }
  barrier_arrive_after_copies(shared_address(&s.q_full));
}

// The producer's items, from `item` on: start(item), then the queries, which a math group loads for the first item, then bring(item).
template <class C, class Start, class Bring>
__device__ __forceinline__ void for_each_item(const Problem& p, SharedMemory& s, typename C::Work item, int rank, const int& warp,
                                              const Start& start, const Bring& bring) {
  uint32_t q_phase = 0;
  for (; item.more(); item.next()) {
    if (item.begin >= item.end) continue;
    start(item);
    if (q_phase++ > 0) {
      barrier_wait(shared_address(&s.q_empty), q_phase & 1);
      load_queries<C>(p, s, item.query, (item.group * (C::kPair ? 2 : 1) + rank) * kRows, warp);
    }
    bring(item);
  }
}

}  // namespace mla
