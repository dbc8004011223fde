// The GPU's twins of the kernels, as cuda/queue.cu calls them: each queues its work on the context's
// stream. They are documented in the headers that they mirror and in queue.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/selector.h"
#include "kernels/steps.h"
#include "kernels/sums.h"
#include "kernels/ternary.h"

namespace geomx::kernels::GEOMX_CUDA {

// casts.cu
void Narrow(Context& context, const float* in, std::uint16_t* out, std::uint64_t n);
void Widen(Context& context, const std::byte* in, float* out, std::uint64_t n);
void WidenAdd(Context& context, const std::byte* in, float* out, std::uint64_t n);
void NarrowBfloat(Context& context, const float* in, std::uint16_t* out, std::uint64_t n);
void WidenBfloat(Context& context, const std::byte* in, float* out, std::uint64_t n);
void WidenBfloatAdd(Context& context, const std::byte* in, float* out, std::uint64_t n);

// sums.cu
void Add(Context& context, float* sum, const float* const* terms, std::size_t count,
         std::uint64_t n);
void AddBytes(Context& context, const std::byte* in, float* out, std::uint64_t n);
void SumOfSquares(Context& context, const float* values, std::uint64_t n, double* sum);
void NormsOf(Context& context, const float* a, const float* b, std::uint64_t n, Norms* norms);
void Contribute(Context& context, const float* values, const Range* ranges, std::uint64_t count,
                double alpha, double* averages);

// The same into memory that the caller has from the same scratch: SquaresRoom(n) doubles.
std::uint64_t SquaresRoom(std::uint64_t n);
void SumOfSquaresIn(Context& context, const float* values, std::uint64_t n, double* sum,
                    double* room);

// Likewise, NormsRoom(n) bytes.
std::uint64_t NormsRoom(std::uint64_t n);
void NormsIn(Context& context, const float* a, const float* b, std::uint64_t n, Norms* norms,
             std::byte* room);

// sparsify.cu
void Sparsify(Context& context, const Sparsification& how, const float* term, float* velocity,
              float* sum, std::uint64_t n, std::uint64_t rows, std::uint64_t* next_fill,
              std::uint32_t* indices, float* values);

// rows.cu
void PackBits(Context& context, const std::uint32_t* numbers, std::uint64_t count,
              std::uint32_t bits, std::byte* out);
void UnpackBits(Context& context, const std::byte* in, std::uint64_t count, std::uint32_t bits,
                std::uint32_t* out);
void Gather(Context& context, const float* from, const std::uint32_t* rows, std::uint64_t count,
            float* out);
void Scatter(Context& context, const float* values, const std::uint32_t* rows, std::uint64_t count,
             float* to);
void ScatterAdd(Context& context, const std::byte* values, const std::byte* indices,
                std::uint64_t count, std::uint64_t elements, float* out, std::uint32_t* refused);

// ternary.cu
void Quantise(Context& context, const Ternary& ternary, const float* added, float* residual,
              std::byte* codes, std::uint64_t n);
void QuantiseToLevel(Context& context, const float* added, float* residual, float* level,
                     std::byte* codes, std::uint64_t n);
void Worth(Context& context, float scale, const std::byte* codes, float* out, std::uint64_t n);
void WorthAdd(Context& context, float scale, const std::byte* codes, float* out, std::uint64_t n);

// steps.cu
void Sgd(Context& context, const Descent& step, float* weight, const float* gradient,
         std::uint64_t n);
void Momentum(Context& context, const Descent& step, float momentum, float* weight,
              const float* gradient, float* velocity, std::uint64_t n);
void Nesterov(Context& context, const Descent& step, float momentum, float* weight,
              const float* gradient, float* velocity, std::uint64_t n);
void Adam(Context& context, const Descent& step, const Moments& moments, float* weight,
          const float* gradient, float* mean, float* square, std::uint64_t n);
void AdamW(Context& context, const Descent& step, const Moments& moments, float correction,
           float* weight, const float* gradient, float* mean, float* square, std::uint64_t n);
void RmsPropPlain(Context& context, const Descent& step, const RmsProp& rms, float* weight,
                  const float* gradient, float* square, std::uint64_t n);
void RmsPropCentered(Context& context, const Descent& step, const RmsProp& rms, float* weight,
                     const float* gradient, float* square, float* mean, float* velocity,
                     std::uint64_t n);
void AdaGrad(Context& context, const Descent& step, float epsilon, float* weight,
             const float* gradient, float* history, std::uint64_t n);
void DcAsgd(Context& context, const Descent& step, const Compensation& compensation, float* weight,
            const float* gradient, float* backup, float* velocity, float* mean_square,
            std::uint64_t n);

}  // namespace geomx::kernels::GEOMX_CUDA
