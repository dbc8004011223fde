// A GPU's queue: its memory, a stream of its own, and the twins of all kernels.
#include "kernels/queue.h"

#include "kernels/cuda/twins.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

// The thread's current device is restored for other users of CUDA.
class On {
 public:
  explicit On(int device) {
    Check(cudaGetDevice(&before_), "asking for the device");
    if (before_ != device) Check(cudaSetDevice(device), "choosing the device");
    switched_ = before_ != device;
  }
  ~On() {
    if (switched_) (void)cudaSetDevice(before_);
  }
  On(const On&) = delete;
  On& operator=(const On&) = delete;

 private:
  int before_ = 0;
  bool switched_ = false;
};

cudaStream_t StreamOf(std::uintptr_t number) { return reinterpret_cast<cudaStream_t>(number); }

// Waiting threads sleep instead of spinning, to leave the cores to computing threads.
class Event final : public Mark {
 public:
  explicit Event(const Context& context) : device_(context.device) {
    const On on(device_);
    Check(cudaEventCreateWithFlags(&event_, cudaEventBlockingSync | cudaEventDisableTiming),
          "making an event");
    if (const cudaError_t error = cudaEventRecord(event_, context.stream); error != cudaSuccess) {
      (void)cudaEventDestroy(event_);
      Check(error, "recording an event");
    }
  }
  ~Event() override { (void)cudaEventDestroy(event_); }
  void Wait() override {
    const On on(device_);
    Check(cudaEventSynchronize(event_), "waiting for an event");
  }
  cudaEvent_t event() const { return event_; }

 private:
  int device_;
  cudaEvent_t event_ = nullptr;
};

class DeviceQueue final : public Queue {
 public:
  DeviceQueue(DeviceInfo info, int device) : info_(std::move(info)) {
    context_.device = device;
    const On on(device);
    int multiprocessors = 1;
    Check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
          "asking for multiprocessors");
    context_.multiprocessors = static_cast<unsigned>(multiprocessors);
    Check(cudaStreamCreateWithFlags(&context_.stream, cudaStreamNonBlocking), "making a stream");
    Check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event");
  }

  // Errors here were reported before, or the process is ending and the driver has shut down.
  ~DeviceQueue() override {
    int before = 0;
    (void)cudaGetDevice(&before);
    (void)cudaSetDevice(context_.device);
    (void)cudaStreamSynchronize(context_.stream);
    (void)cudaFree(context_.memory);
    (void)cudaEventDestroy(event_);
    (void)cudaStreamDestroy(context_.stream);
    (void)cudaSetDevice(before);
    (void)cudaGetLastError();
  }

  const DeviceInfo& device() const override { return info_; }

  std::byte* Take(std::size_t bytes) override {
    const On on(context_.device);
    void* memory = nullptr;
    if (bytes > 0) Check(cudaMalloc(&memory, bytes), "allocating memory");
    return static_cast<std::byte*>(memory);
  }
  void Give(std::byte* memory) override {
    if (memory == nullptr) return;
    const On on(context_.device);
    Check(cudaStreamSynchronize(context_.stream), "waiting for the stream");
    Check(cudaFree(memory), "freeing memory");
  }
  std::byte* TakePinned(std::size_t bytes) override {
    const On on(context_.device);
    void* memory = nullptr;
    if (bytes > 0) Check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "pinning memory");
    return static_cast<std::byte*>(memory);
  }
  void GivePinned(std::byte* memory) override {
    if (memory == nullptr) return;
    const On on(context_.device);
    Check(cudaStreamSynchronize(context_.stream), "waiting for the stream");
    Check(cudaFreeHost(memory), "freeing pinned memory");
  }

  void Copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes == 0) return;
    const On on(context_.device);
    Check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, context_.stream), "copying");
  }
  void Clear(void* memory, std::size_t bytes) override {
    if (bytes == 0) return;
    const On on(context_.device);
    Check(cudaMemsetAsync(memory, 0, bytes, context_.stream), "clearing memory");
  }
  void Wait() override {
    const On on(context_.device);
    Check(cudaStreamSynchronize(context_.stream), "waiting for the stream");
  }
  void WaitForAll() override {
    const On on(context_.device);
    Check(cudaDeviceSynchronize(), "waiting for the device");
  }
  bool Done() override {
    const On on(context_.device);
    const cudaError_t state = cudaStreamQuery(context_.stream);
    if (state == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    Check(state, "asking the stream");
    return true;
  }
  std::uintptr_t stream() const override {
    return reinterpret_cast<std::uintptr_t>(context_.stream);
  }
  void After(std::uintptr_t stream) override {
    const On on(context_.device);
    Check(cudaEventRecord(event_, StreamOf(stream)), "recording an event");
    Check(cudaStreamWaitEvent(context_.stream, event_, 0), "waiting for an event");
  }
  void Before(std::uintptr_t stream) override {
    const On on(context_.device);
    Check(cudaEventRecord(event_, context_.stream), "recording an event");
    Check(cudaStreamWaitEvent(StreamOf(stream), event_, 0), "waiting for an event");
  }
  std::shared_ptr<Mark> Record() override { return std::make_shared<Event>(context_); }
  void After(const Mark& mark) override {
    const On on(context_.device);
    const cudaEvent_t event = static_cast<const Event&>(mark).event();
    Check(cudaStreamWaitEvent(context_.stream, event, 0), "waiting for an event");
  }

  void Narrow(const float* in, std::uint16_t* out, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::Narrow(context_, in, out, n);
  }
  void Widen(const std::byte* in, float* out, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::Widen(context_, in, out, n);
  }
  void WidenAdd(const std::byte* in, float* out, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::WidenAdd(context_, in, out, n);
  }
  void NarrowBfloat(const float* in, std::uint16_t* out, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::NarrowBfloat(context_, in, out, n);
  }
  void WidenBfloat(const std::byte* in, float* out, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::WidenBfloat(context_, in, out, n);
  }
  void WidenBfloatAdd(const std::byte* in, float* out, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::WidenBfloatAdd(context_, in, out, n);
  }
  void Add(float* sum, const float* const* terms, std::size_t count, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::Add(context_, sum, terms, count, n);
  }
  void AddBytes(const std::byte* in, float* out, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::AddBytes(context_, in, out, n);
  }
  void SumOfSquares(const float* values, std::uint64_t n, double* sum) override {
    const On on(context_.device);
    GEOMX_CUDA::SumOfSquares(context_, values, n, sum);
  }
  void NormsOf(const float* a, const float* b, std::uint64_t n, Norms* norms) override {
    const On on(context_.device);
    GEOMX_CUDA::NormsOf(context_, a, b, n, norms);
  }
  void Contribute(const float* values, const Range* ranges, std::uint64_t count, double alpha,
                  double* averages) override {
    const On on(context_.device);
    GEOMX_CUDA::Contribute(context_, values, ranges, count, alpha, averages);
  }
  void Sparsify(const Sparsification& how, const float* term, float* velocity, float* sum,
                std::uint64_t n, std::uint64_t rows, std::uint64_t* next_fill,
                std::uint32_t* indices, float* values) override {
    const On on(context_.device);
    GEOMX_CUDA::Sparsify(context_, how, term, velocity, sum, n, rows, next_fill, indices, values);
  }
  void PackBits(const std::uint32_t* numbers, std::uint64_t count, std::uint32_t bits,
                std::byte* out) override {
    const On on(context_.device);
    GEOMX_CUDA::PackBits(context_, numbers, count, bits, out);
  }
  void UnpackBits(const std::byte* in, std::uint64_t count, std::uint32_t bits,
                  std::uint32_t* out) override {
    const On on(context_.device);
    GEOMX_CUDA::UnpackBits(context_, in, count, bits, out);
  }
  void Gather(const float* from, const std::uint32_t* rows, std::uint64_t count,
              float* out) override {
    const On on(context_.device);
    GEOMX_CUDA::Gather(context_, from, rows, count, out);
  }
  void Scatter(const float* values, const std::uint32_t* rows, std::uint64_t count,
               float* to) override {
    const On on(context_.device);
    GEOMX_CUDA::Scatter(context_, values, rows, count, to);
  }
  void ScatterAdd(const std::byte* values, const std::byte* indices, std::uint64_t count,
                  std::uint64_t elements, float* out, std::uint32_t* refused) override {
    const On on(context_.device);
    GEOMX_CUDA::ScatterAdd(context_, values, indices, count, elements, out, refused);
  }
  void Quantise(const Ternary& ternary, const float* added, float* residual, std::byte* codes,
                std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::Quantise(context_, ternary, added, residual, codes, n);
  }
  void QuantiseToLevel(const float* added, float* residual, float* level, std::byte* codes,
                       std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::QuantiseToLevel(context_, added, residual, level, codes, n);
  }
  void Worth(float scale, const std::byte* codes, float* out, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::Worth(context_, scale, codes, out, n);
  }
  void WorthAdd(float scale, const std::byte* codes, float* out, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::WorthAdd(context_, scale, codes, out, n);
  }
  void Sgd(const Descent& step, float* weight, const float* gradient, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::Sgd(context_, step, weight, gradient, n);
  }
  void Momentum(const Descent& step, float momentum, float* weight, const float* gradient,
                float* velocity, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::Momentum(context_, step, momentum, weight, gradient, velocity, n);
  }
  void Nesterov(const Descent& step, float momentum, float* weight, const float* gradient,
                float* velocity, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::Nesterov(context_, step, momentum, weight, gradient, velocity, n);
  }
  void Adam(const Descent& step, const Moments& moments, float* weight, const float* gradient,
            float* mean, float* square, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::Adam(context_, step, moments, weight, gradient, mean, square, n);
  }
  void AdamW(const Descent& step, const Moments& moments, float correction, float* weight,
             const float* gradient, float* mean, float* square, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::AdamW(context_, step, moments, correction, weight, gradient, mean, square, n);
  }
  void RmsPropPlain(const Descent& step, const RmsProp& rms, float* weight, const float* gradient,
                    float* square, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::RmsPropPlain(context_, step, rms, weight, gradient, square, n);
  }
  void RmsPropCentered(const Descent& step, const RmsProp& rms, float* weight,
                       const float* gradient, float* square, float* mean, float* velocity,
                       std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::RmsPropCentered(context_, step, rms, weight, gradient, square, mean, velocity, n);
  }
  void AdaGrad(const Descent& step, float epsilon, float* weight, const float* gradient,
               float* history, std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::AdaGrad(context_, step, epsilon, weight, gradient, history, n);
  }
  void DcAsgd(const Descent& step, const Compensation& compensation, float* weight,
              const float* gradient, float* backup, float* velocity, float* mean_square,
              std::uint64_t n) override {
    const On on(context_.device);
    GEOMX_CUDA::DcAsgd(context_, step, compensation, weight, gradient, backup, velocity,
                       mean_square, n);
  }

 private:
  DeviceInfo info_;
  Context context_;
  cudaEvent_t event_ = nullptr;
};

std::string Gibibytes(std::size_t bytes) {
  const std::size_t tenths = (bytes * 10 + (std::size_t{1} << 29)) >> 30;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

}  // namespace

std::vector<DeviceInfo> Devices() {
  int count = 0, driver = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || cudaDriverGetVersion(&driver) != cudaSuccess) {
    (void)cudaGetLastError();  // no driver, or none for this toolkit: no devices
    return {};
  }
  std::vector<DeviceInfo> devices;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp about;
    Check(cudaGetDeviceProperties(&about, device), "asking what a device is");
    const int architecture = 10 * about.major + about.minor;
    if (architecture < GEOMX_CUDA_LOWEST) continue;
    devices.push_back({"cuda:" + std::to_string(device),
                       std::string(about.name) + ", sm_" + std::to_string(architecture) + ", " +
                           Gibibytes(about.totalGlobalMem) + ", driver for CUDA " +
                           std::to_string(driver / 1000) + "." +
                           std::to_string(driver % 1000 / 10)});
  }
  return devices;
}

std::string Build() { return GEOMX_CUDA_BUILD; }

std::unique_ptr<Queue> Open(const DeviceInfo& device) {
  return std::make_unique<DeviceQueue>(device, std::stoi(device.name.substr(5)));
}

}  // namespace geomx::kernels::GEOMX_CUDA
