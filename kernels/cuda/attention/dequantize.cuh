// The producers of FP8 keys, which become bf16 in the swizzled tiles on their way from 656-byte records. In a pair, each CTA converts half of a
// block into its own tiles, and bulk copies take it from there to the peer's.
//
// e4m3 to bf16 is a shift of exponent and mantissa into place, which divides by 2^120, and one bf16x2 multiplication by the scale times
// 2^120: exact for power-of-two scales, subnormals included. Other scales, and scales of 2^8 and more, go through fp32.
//
// A warp has 4 KB in flight while it converts the 4 KB before. More would not help: ptxas lets all loads of the loop share one scoreboard,
// and waiting for one is waiting for all. So a batch is waited for as a whole, and only then is the next one issued (see `arrived`). A
// register spilled in the loop would come back over the same scoreboard and undo it: look for LDL in the disassembly after a change here.
#pragma once

#include "attend.cuh"

namespace mla {

// What both producers do with records.
template <class C>
struct Records {
  static_assert(C::kStorage == Storage::kFp8 && C::kLookup == Lookup::kIndices);
  static constexpr int kMathRegisters = 192, kProducerRegisters = 120;
  static constexpr int kWarpRows = C::kLocalRows / 4;  // rows of a block that a warp converts
  static constexpr int kParts = kWarpRows / 8;         // eight rows at a time

  static __device__ __forceinline__ Arrivals arrivals() {
    return {{4, 4 + 128}, 4, 128};  // rope arrives by asynchronous copies of all threads
  }

 protected:
  // 4 KB in the registers of a warp. In a pair, parts 0 and 1 are the left and the right half of the same eight rows; without a pair, the same
  // half of the first and of the next eight rows. A lane holds 16 bytes of rows 2 i + ((lane >> 2) & 1), so that its two 16-byte stores meet
  // no bank conflict.
  struct Raw {
    uint4 bytes[2][4];
  };
  // Scales of a block's rows: a lane has the scale of row 8 part + lane / 4 and group lane % 4.
  struct Scales {
    float value[kParts];
  };

  const Problem& p;
  SharedMemory& s;
  int rank_;
  int lane_, warp_;
  uint32_t phase_ = 0;  // a bit for each buffer
  uint32_t units_;      // of the present block's row

  __device__ __forceinline__ Records(const Problem& problem, SharedMemory& shared, int rank)
      : p(problem), s(shared), rank_(rank), lane_(threadIdx.x & 31), warp_((threadIdx.x >> 5) & 3) {}

  // The column of this lane's row (lane modulo the rows of the warp), and of row 16 warp + lane modulo 16 of the whole block, for rope.
  __device__ __forceinline__ int column_of(int block) const {
    return block * kBlock + rank_ * C::kLocalRows + warp_ * kWarpRows + lane_ % kWarpRows;
  }
  __device__ __forceinline__ int rope_column_of(int block) const { return block * kBlock + warp_ * 16 + (lane_ & 15); }

  // Indices come by asynchronous copies, too. Scoreboards are few: waiting for a register with an index would also wait for the records
  // loaded after it. Lanes 0-15 copy indices of rows of `block`, lanes 16-31 of rope rows of `rope_block`.
  __device__ __forceinline__ void copy_indices(const typename C::Work& item, int block, int rope_block) const {
    const bool rope = lane_ >= 16;
    const int of = rope ? rope_block : block, column = rope ? rope_column_of(of) : column_of(of);
    const bool inside = of < item.end && column < item.keys;
    if (inside)
      copy4(shared_address(&s.indices[warp_][lane_]), p.keys.table + item.query * p.keys.table_stride + column);
    else
      *const_cast<volatile int32_t*>(&s.indices[warp_][lane_]) = -1;
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  // Zero, available once `raw`, and so everything loaded before it, has arrived: a value that it is added to waits for them. ptxas would
  // fold a zero that it knows.
  __device__ __forceinline__ uint32_t arrived(const Raw& raw) const {
    uint32_t any = 0;
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) any |= raw.bytes[part][i].x;
    return any & p.keys.zero;
  }

  // Both halves of eight rows, or one half of sixteen.
  __device__ __forceinline__ void load(Raw& raw, uint32_t units, int half) const {
    const int piece = (lane_ & 3) | (lane_ >> 3) << 2;
#pragma unroll
    for (int part = 0; part < 2; ++part)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = 2 * i + ((lane_ >> 2) & 1) + (C::kPair ? 0 : 8 * part);
        const uint32_t start = __shfl_sync(~0u, units, row);
        uint4& bytes = raw.bytes[part][i];
        bytes = make_uint4(0, 0, 0, 0);
        if (start != kNoRecord)
          bytes = load_once(p.keys.latent + (uint64_t(start) << 4) + (C::kPair ? part : half) * 256 + piece * 16);
      }
  }
  __device__ __forceinline__ void load(Scales& scales, uint32_t units) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint32_t start = __shfl_sync(~0u, units, part * 8 + lane_ / 4);
      scales.value[part] = 0.0f;
      if (start != kNoRecord) scales.value[part] = scale_at(start);
    }
  }
  // The scale of group lane % 4 of the record that starts there.
  __device__ __forceinline__ float scale_at(uint32_t start) const {
    return __ldg(reinterpret_cast<const float*>(p.keys.latent + (uint64_t(start) << 4) + kValueWidth) + (lane_ & 3));
  }

  static __device__ __forceinline__ uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
  }
  static __device__ __forceinline__ uint32_t place(uint32_t word, uint32_t selector) {
    const uint32_t spread = __byte_perm(word, 0, selector);  // a byte in the upper half of each 16 bits
    return (spread & 0x80008000u) | (spread >> 4 & 0x07f007f0u);
  }

  // Any fp32 scale, with one rounding: e4m3 values are exact in bf16, whose upper and lower halves are floats' upper words.
  static __device__ __forceinline__ uint32_t scale_in_fp32(uint32_t placed, float scale) {
    const uint32_t exact = multiply(placed, 0x7b807b80u);  // 2^120
    return pack<__nv_bfloat16>(__uint_as_float(exact << 16) * scale, __uint_as_float(exact & 0xffff0000u) * scale);
  }

  // Eight rows of a half; `tiles` is where they start in the buffer. `scale` is fp32, or bf16 times 2^120: `part` says which of two.
  template <bool kSimple>
  __device__ __forceinline__ void convert(const uint4 (&bytes)[4], uint32_t scale, int part, uint32_t tiles, int half) const {
    const int lane = C::kPair ? lane_ : opaque(lane_), piece = (lane & 3) | (lane >> 3) << 2, odd = (lane >> 2) & 1;
    // Line 2 i + odd, chunks 2 a and 2 a + 1 where a = piece & 3, under the swizzle.
    const uint32_t root = opaque(tiles + (half * kLeftTiles + (piece >> 2)) * kTile + odd * 144 + (piece & 3) * 32);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int holder = (2 * i + odd) * 4 + half * 2 + (piece >> 3);
      const uint32_t words[4] = {bytes[i].x, bytes[i].y, bytes[i].z, bytes[i].w};
      uint32_t both = __shfl_sync(~0u, scale, holder);
      if (kSimple && kParts == 2) both = __byte_perm(both, 0, part == 0 ? 0x1010 : 0x3232);
      uint32_t v[8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t low = place(words[j], 0x1404), high = place(words[j], 0x3424);
        v[2 * j] = kSimple ? multiply(low, both) : scale_in_fp32(low, __uint_as_float(both));
        v[2 * j + 1] = kSimple ? multiply(high, both) : scale_in_fp32(high, __uint_as_float(both));
      }
      const uint32_t first = (root ^ 32 * i) + 256 * i, second = first ^ 16;
      store_shared16(first, v[0], v[1], v[2], v[3]);
      store_shared16(second, v[4], v[5], v[6], v[7]);
    }
  }
  // Whether the scales are powers of two, below the 2^8 that would overflow when multiplied by 2^120.
  __device__ __forceinline__ bool simple(const Scales& scales) const {
    bool all = true;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      all &= (__float_as_uint(scales.value[part]) & 0x7fffffu) == 0 && scales.value[part] < 256.0f;
    return __all_sync(~0u, all);
  }
  // Two bf16 factors. Without a pair, a register is short: both parts' factors share one, and scales that are not simple are loaded again.
  static __device__ __forceinline__ uint32_t factors_of(const Scales& scales) {
    return pack<__nv_bfloat16>(scales.value[0] * 0x1p120f, scales.value[kParts - 1] * 0x1p120f);
  }
  __device__ __forceinline__ float scale_of_part(int part) const {
    const uint32_t start = __shfl_sync(~0u, units_, part * 8 + lane_ / 4);
    return start == kNoRecord ? 0.0f : scale_at(start);
  }
  // Loads the first batch of an item.
  __device__ __forceinline__ void start(const typename C::Work& item, Raw& raw, Scales& scales) {
    copy_indices(item, item.begin + 1, item.begin);
    units_ = p.keys.record_of(p.keys.fetch(item.query, column_of(item.begin), item.keys));
    load(raw, units_, 0);
    load(scales, units_);
  }
  // Takes the indices that have arrived: returns where the records of the block after `block` start, and sets where its own start for rope.
  __device__ __forceinline__ uint32_t take_indices(const typename C::Work& item, int block, uint32_t& rope_units) const {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncwarp();
    const volatile int32_t* indices = s.indices[warp_];
    const uint32_t next = p.keys.record_of(indices[lane_ % kWarpRows]);
    rope_units = p.keys.record_of(indices[16 + (lane_ & 15)]);
    __syncwarp();
    copy_indices(item, block + 2, block + 1);
    return next;
  }
  __device__ __forceinline__ void copy_rope(uint32_t tile, uint32_t units) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int line = 4 * i + (lane_ >> 3);
      const uint32_t start = __shfl_sync(~0u, units, line);
      const bool valid = start != kNoRecord;
      copy16<kEvictLast>(opaque(tile + line * 128 + (((lane_ & 7) ^ (line & 7)) << 4)),
                         p.keys.latent + (valid ? uint64_t(start) << 4 : 0) + kValueWidth + 16 + (lane_ & 7) * 16, valid ? 16 : 0);
    }
  }

  // This warp's rows of a half are complete here; in a pair they are sent to the peer, and as many are on their way from it. The copy reads
  // them as the asynchronous proxy, which takes a fence first; without a pair, the math groups' fences after their waits will do. Stores to the peer
  // (st.async), which take no fence, are not faster: docs/log/attention.md.
  // Before the right half, the first lane says which of the block's keys count.
  __device__ __forceinline__ void announce(int buffer, int half, uint32_t rope_units) const {
    const uint32_t flags = __ballot_sync(~0u, rope_units != kNoRecord);
    if (half == 1 && lane_ == 0) {
      reinterpret_cast<volatile uint16_t*>(&s.mask[buffer])[warp_] = static_cast<uint16_t>(flags);
      barrier_arrive(shared_address(&s.mask_full[buffer]));
    }
    const uint32_t full = shared_address(&s.full[buffer][half]);
    if constexpr (C::kPair) {
      constexpr uint32_t kBytes = kWarpRows * 128;  // of a tile
      fence_async_proxy();
      __syncwarp();
      if (lane_ < kLeftTiles) {
        const uint32_t from = shared_address(s.k[buffer]) + (rank_ * C::kLocalRows + warp_ * kWarpRows) * 128 +
                              (half * kLeftTiles + lane_) * kTile;
        copy_bulk_peer(peer_address(from, rank_ ^ 1), from, kBytes, peer_address(full, rank_ ^ 1));
      }
      if (lane_ == 0) barrier_arrive_expect(full, kLeftTiles * kBytes);
    } else {
      __syncwarp();
      if (lane_ == 0) barrier_arrive(full);
    }
    __syncwarp();
  }
};

// The producer for the seesaw.
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
