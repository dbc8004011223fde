// The optimizers' steps on a GPU: steps.h.
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/elements.h"
#include "kernels/cuda/twins.h"

namespace geomx::kernels::GEOMX_CUDA {
namespace {

struct SgdOp {
  static constexpr int kArrays = 2, kWritten = 1;
  Descent step;
  __device__ void operator()(float* x) const { SgdOne(step, x[0], x[1]); }
};

struct MomentumOp {
  static constexpr int kArrays = 3, kWritten = 2;
  Descent step;
  float momentum;
  __device__ void operator()(float* x) const { MomentumOne(step, momentum, x[0], x[2], x[1]); }
};

struct NesterovOp {
  static constexpr int kArrays = 3, kWritten = 2;
  Descent step;
  float momentum;
  __device__ void operator()(float* x) const { NesterovOne(step, momentum, x[0], x[2], x[1]); }
};

struct AdamOp {
  static constexpr int kArrays = 4, kWritten = 3;
  Descent step;
  Moments moments;
  __device__ void operator()(float* x) const { AdamOne(step, moments, x[0], x[3], x[1], x[2]); }
};

struct AdamWOp {
  static constexpr int kArrays = 4, kWritten = 3;
  Descent step;
  Moments moments;
  float correction;
  __device__ void operator()(float* x) const {
    AdamWOne(step, moments, correction, x[0], x[3], x[1], x[2]);
  }
};

struct RmsPropOp {
  static constexpr int kArrays = 3, kWritten = 2;
  Descent step;
  RmsProp rms;
  __device__ void operator()(float* x) const { RmsPropOne(step, rms, x[0], x[2], x[1]); }
};

struct CenteredOp {
  static constexpr int kArrays = 5, kWritten = 4;
  Descent step;
  RmsProp rms;
  __device__ void operator()(float* x) const {
    CenteredOne(step, rms, x[0], x[4], x[1], x[2], x[3]);
  }
};

struct AdaGradOp {
  static constexpr int kArrays = 3, kWritten = 2;
  Descent step;
  float epsilon;
  __device__ void operator()(float* x) const { AdaGradOne(step, epsilon, x[0], x[2], x[1]); }
};

// Weight, backup, then velocity and mean square if present, then the gradient.
template <bool kAdaptive, bool kMomentum>
struct DcAsgdOp {
  static constexpr int kWritten = 2 + kMomentum + kAdaptive, kArrays = kWritten + 1;
  Descent step;
  Compensation compensation;
  __device__ void operator()(float* x) const {
    const float gradient = x[kWritten];
    float strength = compensation.lamda;
    if constexpr (kAdaptive) strength = StrengthOne(step, compensation, gradient, x[2 + kMomentum]);
    const float move = CompensatedOne(step, strength, x[0], gradient, x[1]);
    if constexpr (kMomentum) {
      x[2] = compensation.momentum * x[2] - move;
      x[0] += x[2];
    } else {
      x[0] -= move;
    }
    x[1] = x[0];
  }
};

float* ReadOnly(const float* array) { return const_cast<float*>(array); }

}  // namespace

void Sgd(Context& context, const Descent& step, float* weight, const float* gradient,
         std::uint64_t n) {
  Apply(context, SgdOp{step}, {{weight, ReadOnly(gradient)}}, n);
}

void Momentum(Context& context, const Descent& step, float momentum, float* weight,
              const float* gradient, float* velocity, std::uint64_t n) {
  Apply(context, MomentumOp{step, momentum}, {{weight, velocity, ReadOnly(gradient)}}, n);
}

void Nesterov(Context& context, const Descent& step, float momentum, float* weight,
              const float* gradient, float* velocity, std::uint64_t n) {
  Apply(context, NesterovOp{step, momentum}, {{weight, velocity, ReadOnly(gradient)}}, n);
}

void Adam(Context& context, const Descent& step, const Moments& moments, float* weight,
          const float* gradient, float* mean, float* square, std::uint64_t n) {
  Apply(context, AdamOp{step, moments}, {{weight, mean, square, ReadOnly(gradient)}}, n);
}

void AdamW(Context& context, const Descent& step, const Moments& moments, float correction,
           float* weight, const float* gradient, float* mean, float* square, std::uint64_t n) {
  Apply(context, AdamWOp{step, moments, correction}, {{weight, mean, square, ReadOnly(gradient)}},
        n);
}

void RmsPropPlain(Context& context, const Descent& step, const RmsProp& rms, float* weight,
                  const float* gradient, float* square, std::uint64_t n) {
  Apply(context, RmsPropOp{step, rms}, {{weight, square, ReadOnly(gradient)}}, n);
}

void RmsPropCentered(Context& context, const Descent& step, const RmsProp& rms, float* weight,
                     const float* gradient, float* square, float* mean, float* velocity,
                     std::uint64_t n) {
  Apply(context, CenteredOp{step, rms}, {{weight, square, mean, velocity, ReadOnly(gradient)}}, n);
}

void AdaGrad(Context& context, const Descent& step, float epsilon, float* weight,
             const float* gradient, float* history, std::uint64_t n) {
  Apply(context, AdaGradOp{step, epsilon}, {{weight, history, ReadOnly(gradient)}}, n);
}

void DcAsgd(Context& context, const Descent& step, const Compensation& compensation, float* weight,
            const float* gradient, float* backup, float* velocity, float* mean_square,
            std::uint64_t n) {
  float* const g = ReadOnly(gradient);
  if (mean_square != nullptr && velocity != nullptr) {
    Apply(context, DcAsgdOp<true, true>{step, compensation},
          {{weight, backup, velocity, mean_square, g}}, n);
  } else if (mean_square != nullptr) {
    Apply(context, DcAsgdOp<true, false>{step, compensation}, {{weight, backup, mean_square, g}},
          n);
  } else if (velocity != nullptr) {
    Apply(context, DcAsgdOp<false, true>{step, compensation}, {{weight, backup, velocity, g}}, n);
  } else {
    Apply(context, DcAsgdOp<false, false>{step, compensation}, {{weight, backup, g}}, n);
  }
}

}  // namespace geomx::kernels::GEOMX_CUDA
