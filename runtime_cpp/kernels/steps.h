// The arithmetic of the optimizers (core/optimizers), element by element, each in one pass over its
// arrays. Weights and state are updated in place; all arrays have `n` elements. The formulas and
// their sources are explained there.
#pragma once

#include <cstdint>

namespace geomx::kernels {

// The start of every step: g = the gradient times `rescale`, clipped to [-clip, clip]. Without a
// bound, `clip` is infinite.
struct Descent {
  float rate;
  float wd;
  float rescale;
  float clip;
};

struct Moments {
  float beta1, beta2, epsilon;
};

// w -= rate (wd w + g)
void Sgd(const Descent& step, float* weight, const float* gradient, std::uint64_t n);

// Polyak's momentum, and Nesterov's.
void Momentum(const Descent& step, float momentum, float* weight, const float* gradient,
              float* velocity, std::uint64_t n);
void Nesterov(const Descent& step, float momentum, float* weight, const float* gradient,
              float* velocity, std::uint64_t n);

// `step.rate` includes the correction of the bias.
void Adam(const Descent& step, const Moments& moments, float* weight, const float* gradient,
          float* mean, float* square, std::uint64_t n);
void AdamW(const Descent& step, const Moments& moments, float correction, float* weight,
           const float* gradient, float* mean, float* square, std::uint64_t n);

struct RmsProp {
  float gamma;
  float momentum;  // of the centered form
  float epsilon;
  float largest;  // bound on the weights
};
void RmsPropPlain(const Descent& step, const RmsProp& rms, float* weight, const float* gradient,
                  float* square, std::uint64_t n);
void RmsPropCentered(const Descent& step, const RmsProp& rms, float* weight, const float* gradient,
                     float* square, float* mean, float* velocity, std::uint64_t n);

void AdaGrad(const Descent& step, float epsilon, float* weight, const float* gradient,
             float* history, std::uint64_t n);

struct Compensation {
  float lamda;     // strength
  float momentum;  // used where there is a velocity
  float decay;     // of the mean square, where there is one
  float epsilon;
};
// `velocity` and `mean_square` may be null.
void DcAsgd(const Descent& step, const Compensation& compensation, float* weight,
            const float* gradient, float* backup, float* velocity, float* mean_square,
            std::uint64_t n);

}  // namespace geomx::kernels
