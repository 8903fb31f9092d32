// Rows of files to their places on a GPU, by threads of the host that run no Python: a dozen threads that do would spend most of
// their time waiting for the interpreter's lock. All threads share the pieces of all calls, in the order of the calls, and so end
// together.
#include <cerrno>
#include <cstdint>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "../common/launch.cuh"

namespace file_rows {

using common::check;
using common::data;
using common::Optional;
using common::TensorView;
using tvm::ffi::Function;

constexpr int64_t kPiece = 2 << 20;  // bytes: 0.6 ms of a thread that reads, and a copy of 38 us

// A call of `Reader::read`. The reader's mutex guards what changes.
struct Call {
  int file;
  int64_t start;  // of its bytes in the file
  cudaStream_t stream;
  int64_t result;    // the number of its bytes; less, if the file has ended; or minus errno
  int64_t left = 0;  // pieces whose copies have not been launched
  cudaError_t fault = cudaSuccess;
  std::condition_variable done;
};

struct Piece {
  Call* call;
  int64_t start;  // in the file
  int64_t size;
  char* target;
};

// Returns `size`; less, if the file has ended; or minus errno.
int64_t read_piece(const Piece& piece, char* host) {
  int64_t done = 0;
  while (done < piece.size) {
    const int64_t count = pread(piece.call->file, host + done, piece.size - done, piece.start + done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -errno;
    if (count == 0) break;
    done += count;
  }
  return done;
}

class Reader {
 public:
  explicit Reader(int64_t threads) {
    check(cudaGetDevice(&device_), "current device");
    check(cudaMallocHost(&memory_, threads * 2 * kPiece), "pinned memory");
    for (int64_t thread = 0; thread < threads; thread++) threads_.emplace_back([=] { serve(memory_ + thread * 2 * kPiece); });
  }

  ~Reader() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    cudaFreeHost(memory_);
  }

  // Reads bytes of an open file from byte `start`, and copies them to the GPU on the current stream. places int64 [n, 3] on the
  // host: the rows one after the other, each with a flag (0: they belong to `weight`, 1: to `scale`), the first byte there, and the
  // number of bytes. Returns `Call::result` when the copies have ended.
  int64_t read(int64_t file, int64_t start, TensorView places, TensorView weight, Optional<TensorView> scale) {
    char* const targets[2] = {data<char>(weight), data<char>(scale)};
    const int64_t* place = data<int64_t>(places);
    Call call{static_cast<int>(file), start, common::stream_of(weight)};
    std::unique_lock<std::mutex> lock(mutex_);
    for (int64_t row = 0; row < places.size(0); row++, place += 3) {
      for (int64_t first = 0; first < place[2]; first += kPiece, call.left++) {
        const int64_t size = std::min(kPiece, place[2] - first);
        pieces_.push_back({&call, start, size, targets[place[0]] + place[1] + first});
        start += size;
      }
    }
    call.result = start - call.start;
    work_.notify_all();
    call.done.wait(lock, [&] { return call.left == 0; });
    lock.unlock();
    check(call.fault, "copy");
    check(cudaStreamSynchronize(call.stream), "copies");
    return call.result;
  }

 private:
  // Reads a piece into one half of `memory` while the previous one is copied from the other.
  void serve(char* memory) {
    cudaSetDevice(device_);
    cudaEvent_t copied[2];
    for (cudaEvent_t& event : copied) cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync);
    std::unique_lock<std::mutex> lock(mutex_);
    for (int half = 0;; half = 1 - half) {
      work_.wait(lock, [&] { return stopped_ || !pieces_.empty(); });
      if (stopped_) break;
      const Piece piece = pieces_.front();
      Call& call = *piece.call;
      pieces_.pop_front();
      lock.unlock();
      char* const host = memory + half * kPiece;
      cudaError_t fault = cudaEventSynchronize(copied[half]);
      const int64_t count = read_piece(piece, host);
      if (fault == cudaSuccess && count == piece.size) {
        fault = cudaMemcpyAsync(piece.target, host, count, cudaMemcpyHostToDevice, call.stream);
        if (fault == cudaSuccess) fault = cudaEventRecord(copied[half], call.stream);
      }
      lock.lock();
      if (fault != cudaSuccess) call.fault = fault;
      if (count < piece.size) call.result = std::min(call.result, count < 0 ? count : piece.start + count - call.start);
      if (--call.left == 0) call.done.notify_one();
    }
    for (cudaEvent_t event : copied) cudaEventDestroy(event);
  }

  int device_ = 0;
  char* memory_ = nullptr;  // pinned, two pieces for each thread
  std::mutex mutex_;        // guards all below, and calls
  std::condition_variable work_;
  std::deque<Piece> pieces_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

// Starts threads for the current device, which end with the last reference to the function that is returned: `Reader::read`.
Function reader(int64_t threads) {
  auto made = std::make_shared<Reader>(threads);
  return Function::FromTyped([made](int64_t file, int64_t start, TensorView places, TensorView weight, Optional<TensorView> scale) {
    return made->read(file, start, places, weight, scale);
  });
}

}  // namespace file_rows

TVM_FFI_DLL_EXPORT_TYPED_FUNC(reader, file_rows::reader);
