// Rows of files to their places on a GPU, by threads of the host that run no Python: a dozen threads that do would spend most of
// their time waiting for the interpreter's lock. All threads share the pieces of all reads, in the order of the reads, and so end
// together.
#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../common/launch.cuh"

namespace file_rows {

using common::check;
using common::data;
using common::Optional;
using common::TensorView;
using tvm::ffi::Bytes;
using tvm::ffi::Function;

constexpr int64_t kPiece = 2 << 20;  // bytes: 0.6 ms of a thread that reads, and a copy of 38 us

// The reader's mutex guards what changes, except `file` while it is opened.
struct Read {
  std::string path, identity;
  cudaEvent_t after;  // the copies wait for it; or null
  std::once_flag opened;
  int file = -1;
  int64_t left = 0;  // pieces that have not ended
  bool failed = false;
  std::condition_variable done;

  void end(int64_t pieces) {
    left -= pieces;
    if (left > 0) return;
    if (file >= 0) close(file);
    file = -1;
    done.notify_all();
  }
};

struct Piece {
  Read* read;
  int64_t start;  // in the file
  int64_t size;
  char* target;
};

// Returns a descriptor; -1, if the file cannot be opened, or is no longer the one that it was.
int open_file(const Read& read) {
  const int file = TEMP_FAILURE_RETRY(open(read.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  fstat(file, &status);
  const int64_t modified = status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
  const int64_t identity[] = {status.st_size, modified, static_cast<int64_t>(status.st_ino)};
  if (read.identity == std::string(reinterpret_cast<const char*>(identity), sizeof identity)) return file;
  close(file);
  return -1;
}

bool read_piece(const Piece& piece, char* host) {
  Read& read = *piece.read;
  std::call_once(read.opened, [&] { read.file = open_file(read); });
  for (int64_t done = 0; done < piece.size;) {
    const int64_t count = TEMP_FAILURE_RETRY(pread(read.file, host + done, piece.size - done, piece.start + done));
    if (count <= 0) return false;
    done += count;
  }
  return true;
}

class Reader {
 public:
  explicit Reader(int64_t threads) {
    check(cudaGetDevice(&device_), "current device");
    check(cudaMallocHost(&memory_, threads * 2 * kPiece), "pinned memory");
    for (int64_t thread = 0; thread < threads; thread++) threads_.emplace_back([=] { serve(memory_ + thread * 2 * kPiece); });
  }

  // Comes after the end of all reads.
  ~Reader() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    cudaFreeHost(memory_);
  }

  // places int64 [n, 3] on the host: for one range of the file after the other its target, the first byte there, and its bytes.
  void begin(Read& read, int64_t start, TensorView places, char* const (&targets)[2]) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t* place = data<int64_t>(places);
    for (int64_t row = 0; row < places.size(0); row++, place += 3) {
      for (int64_t first = 0; first < place[2]; first += kPiece, read.left++) {
        const int64_t size = std::min(kPiece, place[2] - first);
        pieces_.push_back({&read, start, size, targets[place[0]] + place[1] + first});
        start += size;
      }
    }
    lock.unlock();
    work_.notify_all();
  }

  // Returns whether all bytes are on the GPU, or nothing if the read has not ended by then.
  Optional<bool> wait(Read& read, int64_t milliseconds) {
    if (milliseconds < 0) cancel(read);
    std::unique_lock<std::mutex> lock(mutex_);
    if (!read.done.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return read.left == 0; })) return {};
    return !read.failed;
  }

  // Forgets the pieces that no thread has begun, and waits for the others.
  void cancel(Read& read) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto gone = std::remove_if(pieces_.begin(), pieces_.end(), [&](const Piece& piece) { return piece.read == &read; });
    read.end(pieces_.end() - gone);
    pieces_.erase(gone, pieces_.end());
    read.done.wait(lock, [&] { return read.left == 0; });
  }

 private:
  // Reads a piece into one half of `memory` while the previous one is copied from the other.
  void serve(char* memory) {
    cudaSetDevice(device_);
    cudaStream_t stream = nullptr;
    cudaEvent_t copied = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&copied, cudaEventDisableTiming | cudaEventBlockingSync);
    Read* previous = nullptr;
    bool good = false;  // its piece is being copied
    for (int half = 0;; half = 1 - half) {
      Piece piece = {};
      std::unique_lock<std::mutex> lock(mutex_);
      if (previous == nullptr) work_.wait(lock, [&] { return stopped_ || !pieces_.empty(); });
      if (stopped_) break;
      if (!pieces_.empty()) {
        piece = pieces_.front();
        pieces_.pop_front();
      }
      lock.unlock();
      char* const host = memory + half * kPiece;
      const bool is_read = piece.read != nullptr && read_piece(piece, host);
      if (previous != nullptr) {
        // Without anything to read, it waits without sleeping: a step needs these bytes.
        good = good && (piece.read == nullptr ? cudaStreamSynchronize(stream) : cudaEventSynchronize(copied)) == cudaSuccess;
        lock.lock();
        previous->failed = previous->failed || !good;
        previous->end(1);
        lock.unlock();
      }
      previous = piece.read;
      good = is_read && (previous->after == nullptr || cudaStreamWaitEvent(stream, previous->after, 0) == cudaSuccess) &&
             cudaMemcpyAsync(piece.target, host, piece.size, cudaMemcpyHostToDevice, stream) == cudaSuccess &&
             cudaEventRecord(copied, stream) == cudaSuccess;
    }
    cudaEventDestroy(copied);
    cudaStreamDestroy(stream);
  }

  int device_ = 0;
  char* memory_ = nullptr;  // pinned, two pieces for each thread
  std::mutex mutex_;        // guards all below, and reads
  std::condition_variable work_;
  std::deque<Piece> pieces_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

// Starts threads for the current device. Returns a function that begins a read and returns `Reader::wait` of it. The last reference
// to this ends the read; the last one to all of them ends the threads.
Function reader(int64_t threads) {
  auto made = std::make_shared<Reader>(threads);
  return Function::FromTyped(
      [made](Bytes path, Bytes identity, int64_t start, TensorView places, int64_t weight, int64_t scale, int64_t after) {
        const auto end = [made](Read* read) {
          made->cancel(*read);
          delete read;
        };
        std::shared_ptr<Read> read(new Read{path, identity, reinterpret_cast<cudaEvent_t>(after)}, end);
        made->begin(*read, start, places, {reinterpret_cast<char*>(weight), reinterpret_cast<char*>(scale)});
        return Function::FromTyped([made, read](int64_t milliseconds) { return made->wait(*read, milliseconds); });
      });
}

}  // namespace file_rows

TVM_FFI_DLL_EXPORT_TYPED_FUNC(reader, file_rows::reader);
