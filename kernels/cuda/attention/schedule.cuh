// The order in which the two math groups of the attention core work: constants of a kernel's configuration.
#pragma once

namespace mla {

// How much of a group's next scores is issued before the group waits for the other group's probabilities.
enum class Ahead {
  kNothing,
  kLeftHalf,  // what the left half of the keys gives
  kAll,
};

// When the half of a buffer is released that the other group's probabilities are multiplied with.
enum class Release {
  kBehindScores,  // when all the next scores have been issued behind those MMAs
  kBehindTile,    // when one tile of scores has been
  kAtOnce,        // before the next scores
};

template <Ahead kEven_, Ahead kOdd_, Release kRelease_, bool kEvenHalves_, bool kOddHalves_, bool kFence_>
struct Order {
  static constexpr Ahead kEven = kEven_, kOdd = kOdd_;
  static constexpr Release kRelease = kRelease_;
  // Probabilities of even (odd) blocks are handed over in two halves of 32 keys, and the own values are added in two halves.
  static constexpr bool kEvenHalves = kEvenHalves_, kOddHalves = kOddHalves_;
  // A proxy fence between the full barrier of keys and their scores.
  static constexpr bool kFence = kFence_;
};

}  // namespace mla
