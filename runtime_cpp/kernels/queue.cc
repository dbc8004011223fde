#include "kernels/queue.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "kernels/bfloat.h"
#include "kernels/bits.h"
#include "kernels/half.h"

namespace geomx::kernels {
namespace {

const DeviceInfo kProcessor = {"cpu", "the processor's own memory"};

class Past final : public Mark {
 public:
  void Wait() override {}
};

// Executes all work on submission.
class ProcessorQueue final : public Queue {
 public:
  const DeviceInfo& device() const override { return kProcessor; }

  std::byte* Take(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    return static_cast<std::byte*>(::operator new(bytes, std::align_val_t{256}));
  }
  void Give(std::byte* memory) override { ::operator delete(memory, std::align_val_t{256}); }
  std::byte* TakePinned(std::size_t bytes) override { return Take(bytes); }
  void GivePinned(std::byte* memory) override { Give(memory); }
  void Copy(void* to, const void* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void Clear(void* memory, std::size_t bytes) override {
    if (bytes > 0) std::memset(memory, 0, bytes);
  }
  void Wait() override {}
  void WaitForAll() override {}
  bool Done() override { return true; }
  std::uintptr_t stream() const override { return 0; }
  void After(std::uintptr_t) override {}
  void Before(std::uintptr_t) override {}
  std::shared_ptr<Mark> Record() override { return std::make_shared<Past>(); }
  void After(const Mark&) override {}

  void Narrow(const float* in, std::uint16_t* out, std::uint64_t n) override {
    kernels::Narrow(in, out, n);
  }
  void Widen(const std::byte* in, float* out, std::uint64_t n) override {
    kernels::Widen(in, out, n);
  }
  void WidenAdd(const std::byte* in, float* out, std::uint64_t n) override {
    kernels::WidenAdd(in, out, n);
  }
  void NarrowBfloat(const float* in, std::uint16_t* out, std::uint64_t n) override {
    kernels::NarrowBfloat(in, out, n);
  }
  void WidenBfloat(const std::byte* in, float* out, std::uint64_t n) override {
    kernels::WidenBfloat(in, out, n);
  }
  void WidenBfloatAdd(const std::byte* in, float* out, std::uint64_t n) override {
    kernels::WidenBfloatAdd(in, out, n);
  }

  void Add(float* sum, const float* const* terms, std::size_t count, std::uint64_t n) override {
    kernels::Add(sum, terms, count, n);
  }
  void AddBytes(const std::byte* in, float* out, std::uint64_t n) override {
    kernels::AddBytes(in, out, n);
  }
  void SumOfSquares(const float* values, std::uint64_t n, double* sum) override {
    *sum = kernels::SumOfSquares(values, n);
  }
  void NormsOf(const float* a, const float* b, std::uint64_t n, Norms* norms) override {
    *norms = kernels::NormsOf(a, b, n);
  }
  void Contribute(const float* values, const Range* ranges, std::uint64_t count, double alpha,
                  double* averages) override {
    kernels::Contribute(values, ranges, count, alpha, averages);
  }

  void Sparsify(const Sparsification& how, const float* term, float* velocity, float* sum,
                std::uint64_t n, std::uint64_t rows, std::uint64_t* next_fill,
                std::uint32_t* indices, float* values) override {
    if (rows == 0) return;
    Selector selector(*next_fill);
    const Entries& chosen = kernels::Sparsify(how, term, velocity, sum, n, rows, selector);
    std::copy(chosen.indices.begin(), chosen.indices.end(), indices);
    std::copy(chosen.values.begin(), chosen.values.end(), values);
    *next_fill = selector.next_fill();
  }
  void PackBits(const std::uint32_t* numbers, std::uint64_t count, std::uint32_t bits,
                std::byte* out) override {
    geomx::PackBits(numbers, count, bits, out);
  }
  void UnpackBits(const std::byte* in, std::uint64_t count, std::uint32_t bits,
                  std::uint32_t* out) override {
    geomx::UnpackBits(in, count, bits, out);
  }
  void Gather(const float* from, const std::uint32_t* rows, std::uint64_t count,
              float* out) override {
    kernels::Gather(from, rows, count, out);
  }
  void Scatter(const float* values, const std::uint32_t* rows, std::uint64_t count,
               float* to) override {
    kernels::Scatter(values, rows, count, to);
  }
  void ScatterAdd(const std::byte* values, const std::byte* indices, std::uint64_t count,
                  std::uint64_t elements, float* out, std::uint32_t* refused) override {
    *refused = !kernels::ScatterAdd(values, indices, count, elements, out);
  }

  void Quantise(const Ternary& ternary, const float* added, float* residual, std::byte* codes,
                std::uint64_t n) override {
    kernels::Quantise(ternary, added, residual, codes, n);
  }
  void QuantiseToLevel(const float* added, float* residual, float* level, std::byte* codes,
                       std::uint64_t n) override {
    *level = kernels::QuantiseToLevel(added, residual, codes, n);
  }
  void Worth(float scale, const std::byte* codes, float* out, std::uint64_t n) override {
    kernels::Worth(scale, codes, out, n);
  }
  void WorthAdd(float scale, const std::byte* codes, float* out, std::uint64_t n) override {
    kernels::WorthAdd(scale, codes, out, n);
  }

  void Sgd(const Descent& step, float* weight, const float* gradient, std::uint64_t n) override {
    kernels::Sgd(step, weight, gradient, n);
  }
  void Momentum(const Descent& step, float momentum, float* weight, const float* gradient,
                float* velocity, std::uint64_t n) override {
    kernels::Momentum(step, momentum, weight, gradient, velocity, n);
  }
  void Nesterov(const Descent& step, float momentum, float* weight, const float* gradient,
                float* velocity, std::uint64_t n) override {
    kernels::Nesterov(step, momentum, weight, gradient, velocity, n);
  }
  void Adam(const Descent& step, const Moments& moments, float* weight, const float* gradient,
            float* mean, float* square, std::uint64_t n) override {
    kernels::Adam(step, moments, weight, gradient, mean, square, n);
  }
  void AdamW(const Descent& step, const Moments& moments, float correction, float* weight,
             const float* gradient, float* mean, float* square, std::uint64_t n) override {
    kernels::AdamW(step, moments, correction, weight, gradient, mean, square, n);
  }
  void RmsPropPlain(const Descent& step, const RmsProp& rms, float* weight, const float* gradient,
                    float* square, std::uint64_t n) override {
    kernels::RmsPropPlain(step, rms, weight, gradient, square, n);
  }
  void RmsPropCentered(const Descent& step, const RmsProp& rms, float* weight,
                       const float* gradient, float* square, float* mean, float* velocity,
                       std::uint64_t n) override {
    kernels::RmsPropCentered(step, rms, weight, gradient, square, mean, velocity, n);
  }
  void AdaGrad(const Descent& step, float epsilon, float* weight, const float* gradient,
               float* history, std::uint64_t n) override {
    kernels::AdaGrad(step, epsilon, weight, gradient, history, n);
  }
  void DcAsgd(const Descent& step, const Compensation& compensation, float* weight,
              const float* gradient, float* backup, float* velocity, float* mean_square,
              std::uint64_t n) override {
    kernels::DcAsgd(step, compensation, weight, gradient, backup, velocity, mean_square, n);
  }
};

}  // namespace

std::vector<DeviceInfo> Devices() {
  std::vector<DeviceInfo> devices = {kProcessor};
  for (DeviceInfo& device : cuda::Devices()) devices.push_back(std::move(device));
  return devices;
}

std::string CudaBuild() { return cuda::Build(); }

std::unique_ptr<Queue> OpenQueue(const std::string& device) {
  if (device == kProcessor.name) return std::make_unique<ProcessorQueue>();
  for (const DeviceInfo& found : cuda::Devices()) {
    if (found.name == device) return cuda::Open(found);
  }
  std::string known = kProcessor.name;
  for (const DeviceInfo& found : cuda::Devices()) known += ", " + found.name;
  throw std::invalid_argument("no device " + device + "; there is " + known);
}

}  // namespace geomx::kernels
