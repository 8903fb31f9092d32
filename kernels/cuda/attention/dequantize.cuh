// The producer of FP8 keys for the seesaw. In a pair, each CTA converts half of a block into its own tiles, and bulk copies take it from
// there to the peer's.
#pragma once

#include "attend.cuh"
#include "records.cuh"

namespace mla {

template <class C>
struct Dequantize : Records<C> {
  static __device__ __forceinline__ void run(const Problem& p, SharedMemory& s, int cluster, int clusters, int rank) {
    Dequantize me{p, s, rank};
    for_each_item<C>(
        p, s, typename C::Work(p, cluster, clusters), rank, me.warp_,
        [&](const typename C::Work& item) { me.start(item, me.raw_[0], me.scales_[0]); },
        [&](const typename C::Work& item) {
          for (int block = item.begin; block < item.end; block += 2) {
            me.template fill<0>(item, block);
            if (block + 1 < item.end) me.template fill<1>(item, block + 1);
          }
        });
  }

 private:
  using Base = Records<C>;
  using typename Base::Raw;
  using typename Base::Scales;
  using Base::kParts, Base::kWarpRows, Base::p, Base::s, Base::rank_, Base::lane_, Base::warp_, Base::phase_, Base::units_;
  Raw raw_[2];        // of even and odd blocks, or of left and right halves
  Scales scales_[2];  // of even and odd blocks

  __device__ __forceinline__ Dequantize(const Problem& problem, SharedMemory& shared, int rank) : Base(problem, shared, rank) {}

  // Converts one block into its buffer, while the next one is loaded.
  template <int kBuffer>
  __device__ __forceinline__ void fill(const typename C::Work& item, int block) {
    const uint32_t parity = (phase_ >> kBuffer & 1) ^ 1;
    phase_ ^= 1u << kBuffer;
    uint32_t rope_units, next = this->take_indices(item, block, rope_units);
    const uint32_t tiles = shared_address(s.k[kBuffer]) + (rank_ * C::kLocalRows + warp_ * kWarpRows) * 128;
    const Scales& scales = scales_[kBuffer];
    if constexpr (C::kPair) {
      next += this->arrived(raw_[kBuffer]);
      this->load(raw_[kBuffer ^ 1], next, 0);
      this->load(scales_[kBuffer ^ 1], next);
    } else {
      this->load(raw_[1], units_ + this->arrived(raw_[0]), 1);
    }
    const bool simple = this->simple(scales);
    const uint32_t factors = this->factors_of(scales);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!C::kPair && half == 1) {
        next += this->arrived(raw_[1]);
        this->load(raw_[0], next, 0);
        this->load(scales_[kBuffer ^ 1], next);
      }
      barrier_wait(shared_address(&s.empty[kBuffer][half]), parity);
      if (half == 1) {
        this->copy_rope(shared_address(s.k[kBuffer]) + 8 * kTile + warp_ * 16 * 128, rope_units);
        barrier_arrive_after_copies(shared_address(&s.full[kBuffer][1]));
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const auto& bytes = C::kPair ? raw_[kBuffer].bytes[half] : raw_[half].bytes[part];
        if (simple) {
          this->template convert<true>(bytes, factors, part, tiles + part * 1024, half);
        } else {
          const float scale = kParts > 1 ? this->scale_of_part(part) : scales.value[part];
          this->template convert<false>(bytes, __float_as_uint(scale), 0, tiles + part * 1024, half);
        }
      }
      this->announce(kBuffer, half, rope_units);
    }
    units_ = next;
  }
};

// ---- The producer of FP8 keys for one_scorer.cuh, in a third of the code above: keys that have arrived move to other registers, so that one
// copy of the code serves both buffers.

template <class C>
struct RolledDequantize : Records<C> {
  // `item` is the first one; all threads have read it.
  static __device__ __forceinline__ void run(const Problem& p, SharedMemory& s, typename C::Work item, int rank) {
    RolledDequantize me{p, s, rank};
    for_each_item<C>(
        p, s, item, rank, me.warp_, [&](const typename C::Work& each) { me.start(each, me.raw_, me.scales_); },
        [&](const typename C::Work& each) {
          int buffer = 0;
#pragma unroll 1
          for (int block = each.begin; block < each.end; ++block, buffer ^= 1) me.fill(each, block, buffer);
        });
  }

 private:
  using Base = Records<C>;
  using typename Base::Raw;
  using typename Base::Scales;
  using Base::kParts, Base::kWarpRows, Base::p, Base::s, Base::rank_, Base::lane_, Base::warp_, Base::phase_, Base::units_;
  Raw raw_;        // of the next batch
  Scales scales_;  // of the next block

  __device__ __forceinline__ RolledDequantize(const Problem& problem, SharedMemory& shared, int rank) : Base(problem, shared, rank) {}

  static __device__ __forceinline__ void next_part(Raw& raw) {
#pragma unroll
    for (int i = 0; i < 4; ++i) raw.bytes[0][i] = raw.bytes[1][i];
  }

  __device__ __forceinline__ void fill(const typename C::Work& item, int block, int buffer) {
    const uint32_t parity = (phase_ >> buffer & 1) ^ 1;
    phase_ ^= 1u << buffer;
    uint32_t rope_units, next = this->take_indices(item, block, rope_units);
    const uint32_t tiles = shared_address(s.k[0]) + buffer * (kTiles * kTile) + (rank_ * C::kLocalRows + warp_ * kWarpRows) * 128;
    // Rope first, so that it is on its way during the conversion.
    barrier_wait(shared_address(&s.empty[buffer][1]), parity);
    this->copy_rope(shared_address(s.k[0]) + buffer * (kTiles * kTile) + 8 * kTile + warp_ * 16 * 128, rope_units);
    barrier_arrive_after_copies(shared_address(&s.full[buffer][1]));
    const Scales scales = scales_;
    Raw raw;
    // The rows that have arrived: both halves of eight, or a half of sixteen. The next batch is of the next block if this is the last of its block.
    const auto take = [&](bool last) {
      const uint32_t ready = this->arrived(raw_);
      raw = raw_;
      if (last) next += ready;
      this->load(raw_, last ? next : units_ + ready, last ? 0 : 1);
      if (last) this->load(scales_, next);
    };
    if constexpr (C::kPair) take(true);
    const bool simple = this->simple(scales);
    const uint32_t factors = this->factors_of(scales);
    const uint32_t factor = C::kPair && !simple ? __float_as_uint(scales.value[0]) : factors;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      if constexpr (!C::kPair) take(half == 1);
      if (C::kPair && half == 1) next_part(raw);
      if (half == 0) barrier_wait(shared_address(&s.empty[buffer][0]), parity);
#pragma unroll 1
      for (int part = 0; part < kParts; ++part) {
        if (part > 0) next_part(raw);
        if (simple) {
          this->template convert<true>(raw.bytes[0], factor, part, tiles + part * 1024, half);
        } else {
          const uint32_t scale = kParts > 1 ? __float_as_uint(this->scale_of_part(part)) : factor;
          this->template convert<false>(raw.bytes[0], scale, 0, tiles + part * 1024, half);
        }
      }
      this->announce(buffer, half, rope_units);
    }
    units_ = next;
  }
};

}  // namespace mla
