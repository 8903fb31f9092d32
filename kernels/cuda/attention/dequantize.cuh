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
    uint32_t q_phase = 0;
    for (typename C::Work item(p, cluster, clusters); item.more(); item.next()) {
      if (item.begin >= item.end) continue;
      me.start(item);
      // The first item's queries are loaded by a math group.
      if (q_phase++ > 0) {
        barrier_wait(shared_address(&s.q_empty), q_phase & 1);
        load_queries<C>(p, s, item.query, (item.group * (C::kPair ? 2 : 1) + rank) * kRows, me.warp_);
      }
      for (int block = item.begin; block < item.end; block += 2) {
        me.template fill<0>(item, block);
        if (block + 1 < item.end) me.template fill<1>(item, block + 1);
      }
    }
  }

 private:
  using Base = Records<C>;
  using typename Base::Raw;
  using typename Base::Scales;
  using Base::kInvalid, Base::kParts, Base::kWarpRows, Base::p, Base::s, Base::rank_, Base::lane_, Base::warp_, Base::phase_, Base::units_;
  Raw raw_[2];        // of even and odd blocks, or of left and right halves
  Scales scales_[2];  // of even and odd blocks

  __device__ __forceinline__ Dequantize(const Problem& problem, SharedMemory& shared, int rank) : Base(problem, shared, rank) {}

  __device__ __forceinline__ void start(const typename C::Work& item) {
    this->copy_indices(item, item.begin + 1, item.begin);
    units_ = this->units_of(p.keys.fetch(item.query, this->column_of(item.begin), item.keys));
    this->load(raw_[0], units_, 0);
    this->load(scales_[0], units_);
  }

  // Converts one block into its buffer, while the next one is loaded.
  template <int kBuffer>
  __device__ __forceinline__ void fill(const typename C::Work& item, int block) {
    const uint32_t parity = (phase_ >> kBuffer & 1) ^ 1;
    phase_ ^= 1u << kBuffer;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    const volatile int32_t* indices = s.indices[warp_];
    uint32_t next = this->units_of(indices[lane_ % kWarpRows]);
    const uint32_t rope_units = this->units_of(indices[16 + (lane_ & 15)]);
    __syncwarp();
    this->copy_indices(item, block + 2, block + 1);
    const uint32_t tiles = shared_address(s.k[kBuffer]) + (rank_ * C::kLocalRows + warp_ * kWarpRows) * 128;
    const Scales& scales = scales_[kBuffer];
    if constexpr (C::kPair) {
      next += this->arrived(raw_[kBuffer]);
      this->load(raw_[kBuffer ^ 1], next, 0);
      this->load(scales_[kBuffer ^ 1], next);
    } else {
      this->load(raw_[1], units_ + this->arrived(raw_[0]), 1);
    }
    bool simple = true;  // powers of two, below the 2^8 that would overflow when multiplied by 2^120
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      simple &= (__float_as_uint(scales.value[part]) & 0x7fffffu) == 0 && scales.value[part] < 256.0f;
    simple = __all_sync(~0u, simple);
    // Without a pair, a register is short: both parts' factors share one, and other scales are loaded again.
    const uint32_t factors = pack<__nv_bfloat16>(scales.value[0] * 0x1p120f, scales.value[kParts - 1] * 0x1p120f);
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
          float scale = scales.value[part];
          if (kParts > 1) {
            const uint32_t start = __shfl_sync(~0u, units_, part * 8 + lane_ / 4);
            scale = start == kInvalid ? 0.0f : this->scale_at(start);
          }
          this->template convert<false>(bytes, __float_as_uint(scale), 0, tiles + part * 1024, half);
        }
      }
      const uint32_t flags = __ballot_sync(~0u, rope_units != kInvalid);
      if (half == 1 && lane_ == 0) {
        reinterpret_cast<volatile uint16_t*>(&s.mask[kBuffer])[warp_] = static_cast<uint16_t>(flags);
        barrier_arrive(shared_address(&s.mask_full[kBuffer]));
      }
      this->announce(kBuffer, half);
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
    uint32_t q_phase = 0;
    for (; item.more(); item.next()) {
      if (item.begin >= item.end) continue;
      me.start(item);
      // The first item's queries are loaded by a math group.
      if (q_phase++ > 0) {
        barrier_wait(shared_address(&s.q_empty), q_phase & 1);
        load_queries<C>(p, s, item.query, (item.group * (C::kPair ? 2 : 1) + rank) * kRows, me.warp_);
      }
      int buffer = 0;
#pragma unroll 1
      for (int block = item.begin; block < item.end; ++block, buffer ^= 1) me.fill(item, block, buffer);
    }
  }

 private:
  using Base = Records<C>;
  using typename Base::Raw;
  using typename Base::Scales;
  using Base::kInvalid, Base::kParts, Base::kWarpRows, Base::p, Base::s, Base::rank_, Base::lane_, Base::warp_, Base::phase_, Base::units_;
  Raw raw_;        // of the next batch
  Scales scales_;  // of the next block

  __device__ __forceinline__ RolledDequantize(const Problem& problem, SharedMemory& shared, int rank) : Base(problem, shared, rank) {}

  __device__ __forceinline__ void start(const typename C::Work& item) {
    this->copy_indices(item, item.begin + 1, item.begin);
    units_ = this->units_of(p.keys.fetch(item.query, this->column_of(item.begin), item.keys));
    this->load(raw_, units_, 0);
    this->load(scales_, units_);
  }

  static __device__ __forceinline__ void next_part(Raw& raw) {
#pragma unroll
    for (int i = 0; i < 4; ++i) raw.bytes[0][i] = raw.bytes[1][i];
  }

  __device__ __forceinline__ void fill(const typename C::Work& item, int block, int buffer) {
    const uint32_t parity = (phase_ >> buffer & 1) ^ 1;
    phase_ ^= 1u << buffer;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    const volatile int32_t* indices = s.indices[warp_];
    uint32_t next = this->units_of(indices[lane_ % kWarpRows]);
    const uint32_t rope_units = this->units_of(indices[16 + (lane_ & 15)]);
    __syncwarp();
    this->copy_indices(item, block + 2, block + 1);
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
    bool simple = true;  // powers of two, below the 2^8 that would overflow when multiplied by 2^120
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      simple &= (__float_as_uint(scales.value[part]) & 0x7fffffu) == 0 && scales.value[part] < 256.0f;
    simple = __all_sync(~0u, simple);
    // Without a pair, a register is short: both parts' factors share one, and other scales are loaded again.
    const uint32_t factors = pack<__nv_bfloat16>(scales.value[0] * 0x1p120f, scales.value[kParts - 1] * 0x1p120f);
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
          uint32_t scale = factor;
          if (kParts > 1) {
            const uint32_t start = __shfl_sync(~0u, units_, part * 8 + lane_ / 4);
            scale = __float_as_uint(start == kInvalid ? 0.0f : this->scale_at(start));
          }
          this->template convert<false>(raw.bytes[0], scale, 0, tiles + part * 1024, half);
        }
      }
      const uint32_t flags = __ballot_sync(~0u, rope_units != kInvalid);
      if (half == 1 && lane_ == 0) {
        reinterpret_cast<volatile uint16_t*>(&s.mask[buffer])[warp_] = static_cast<uint16_t>(flags);
        barrier_arrive(shared_address(&s.mask_full[buffer]));
      }
      this->announce(buffer, half);
    }
    units_ = next;
  }
};

}  // namespace mla
