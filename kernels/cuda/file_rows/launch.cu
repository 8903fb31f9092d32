// Rows of a file to their places on the GPU, by one thread of the host. In Python, a dozen threads that read and copy would spend
// most of their time waiting for the interpreter's lock.
#include <cerrno>
#include <cstdint>
#include <unistd.h>

#include <algorithm>

#include "../common/launch.cuh"

namespace file_rows {

using common::check;
using common::data;
using common::Optional;
using common::TensorView;

constexpr int64_t kChunk = 4 << 20;  // bytes that are copied to the GPU while the next ones are read

// Reads memory.size(0) bytes of an open file from byte `start` into pinned memory uint8 [S], and copies them to the GPU on the
// current stream. places int64 [n, 3] on the host: the rows one after the other, each with a flag (0: they belong to `weight`, 1: to
// `scale`), the first byte there, and the number of bytes. Returns when the copies have ended: S; less, if the file has ended; or
// minus errno.
int64_t read_rows(int64_t file, int64_t start, TensorView memory, TensorView places, TensorView weight, Optional<TensorView> scale) {
  common::DeviceGuard guard(weight);
  const cudaStream_t stream = common::stream_of(weight);
  char* const host = data<char>(memory);
  char* const targets[2] = {data<char>(weight), data<char>(scale)};
  const int64_t* place = data<int64_t>(places);
  int64_t done = 0, copied = 0, result = memory.size(0);  // `copied`: bytes of the present place
  while (done < memory.size(0)) {
    const int64_t count = pread(static_cast<int>(file), host + done, std::min(kChunk, memory.size(0) - done), start + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      result = count < 0 ? -errno : done;
      break;
    }
    for (const int64_t end = done + count; done < end;) {
      const int64_t size = std::min(end - done, place[2] - copied);
      check(cudaMemcpyAsync(targets[place[0]] + place[1] + copied, host + done, size, cudaMemcpyHostToDevice, stream), "copy");
      done += size;
      copied += size;
      if (copied == place[2]) {
        place += 3;
        copied = 0;
      }
    }
  }
  check(cudaStreamSynchronize(stream), "copies");
  return result;
}

}  // namespace file_rows

TVM_FFI_DLL_EXPORT_TYPED_FUNC(read_rows, file_rows::read_rows);
