// The order in which the two math groups of the attention core work: constants of a kernel's configuration, since kernels differ in what
// they wait for. All orders compute the same bits: blocks are added to a row's output in the order of their positions in every one.
//
// No order can deadlock. Let block n go into buffer n % 2, so that its keys wait for both halves of block n - 2 to be released. A release of
// block n - 2 waits for the probabilities of block n - 2, which need its keys, and at most for the arrival of keys of block n - 1, whose
// scores a group issues before it waits for the MMAs that the release stands for (kBehindTile), or before it takes the
// other group's probabilities (Ahead). So the keys of block n wait only for keys of earlier blocks, and the producer fills buffers in
// the order of blocks, left halves first. A group that waits for probabilities of block m waits for a group that waits for keys of block
// m, or for probabilities of block m - 1. Queries are replaced when the last scores of an item are done, which waits for none of the
// next item's. In a pair both CTAs take the same blocks in the same order, and all of this holds for the two together.
#pragma once

namespace mla {

// How much of a group's next scores is issued before the group waits for the other group's probabilities.
enum class Ahead {
  kNothing,
  kLeftHalf,  // the products with the left half of the keys
  kAll,
};

// When the half of a buffer that the other group's probabilities are multiplied with is released.
enum class Release {
  kBehindTile,  // when one tile of the next scores has been issued after those MMAs
  kAtOnce,      // before the next scores are waited for
};

template <Ahead kEven_, Ahead kOdd_, Release kRelease_, bool kFence_>
struct Order {
  static constexpr Ahead kEven = kEven_, kOdd = kOdd_;
  static constexpr Release kRelease = kRelease_;
  // A proxy fence between the full barrier of keys and their scores. Keys that the generic proxy stored need it. For keys that cp.async
  // copied, the PTX manual asks for it, too; FlashMLA and the multistage kernels of CUTLASS do without.
  static constexpr bool kFence = kFence_;
};

// One group scores all blocks (one_scorer.cuh). It has the fence.
struct OneScorer {
  static constexpr bool kFence = true;
};

}  // namespace mla
