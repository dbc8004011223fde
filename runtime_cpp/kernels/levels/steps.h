// The optimizers' steps at one level (steps.h); part of a level, see table.h. Plain loops without a
// branch per element, each array read and written once.

static void SgdStep(const Descent& step, float* __restrict w, const float* __restrict gradient,
                    std::uint64_t n) {
  const Descent s = step;
  for (std::uint64_t i = 0; i < n; ++i) SgdOne(s, w[i], gradient[i]);
}

static void MomentumStep(const Descent& step, float momentum, float* __restrict w,
                         const float* __restrict gradient, float* __restrict velocity,
                         std::uint64_t n) {
  const Descent s = step;
  for (std::uint64_t i = 0; i < n; ++i) MomentumOne(s, momentum, w[i], gradient[i], velocity[i]);
}

static void NesterovStep(const Descent& step, float momentum, float* __restrict w,
                         const float* __restrict gradient, float* __restrict velocity,
                         std::uint64_t n) {
  const Descent s = step;
  for (std::uint64_t i = 0; i < n; ++i) NesterovOne(s, momentum, w[i], gradient[i], velocity[i]);
}

static void AdamStep(const Descent& step, const Moments& moments, float* __restrict w,
                     const float* __restrict gradient, float* __restrict mean,
                     float* __restrict square, std::uint64_t n) {
  const Descent s = step;
  const Moments m = moments;
  for (std::uint64_t i = 0; i < n; ++i) AdamOne(s, m, w[i], gradient[i], mean[i], square[i]);
}

static void AdamWStep(const Descent& step, const Moments& moments, float correction,
                      float* __restrict w, const float* __restrict gradient,
                      float* __restrict mean, float* __restrict square, std::uint64_t n) {
  const Descent s = step;
  const Moments m = moments;
  for (std::uint64_t i = 0; i < n; ++i) {
    AdamWOne(s, m, correction, w[i], gradient[i], mean[i], square[i]);
  }
}

static void RmsPropStep(const Descent& step, const RmsProp& rms, float* __restrict w,
                        const float* __restrict gradient, float* __restrict square,
                        std::uint64_t n) {
  const Descent s = step;
  const RmsProp r = rms;
  for (std::uint64_t i = 0; i < n; ++i) RmsPropOne(s, r, w[i], gradient[i], square[i]);
}

static void CenteredStep(const Descent& step, const RmsProp& rms, float* __restrict w,
                         const float* __restrict gradient, float* __restrict square,
                         float* __restrict mean, float* __restrict velocity, std::uint64_t n) {
  const Descent s = step;
  const RmsProp r = rms;
  for (std::uint64_t i = 0; i < n; ++i) {
    CenteredOne(s, r, w[i], gradient[i], square[i], mean[i], velocity[i]);
  }
}

static void AdaGradStep(const Descent& step, float epsilon, float* __restrict w,
                        const float* __restrict gradient, float* __restrict history,
                        std::uint64_t n) {
  const Descent s = step;
  for (std::uint64_t i = 0; i < n; ++i) AdaGradOne(s, epsilon, w[i], gradient[i], history[i]);
}

template <bool kAdaptive, bool kMomentum>
static void CompensatedStep(const Descent& step, const Compensation& compensation,
                            float* __restrict w, const float* __restrict gradient,
                            float* __restrict backup, float* __restrict velocity,
                            float* __restrict mean_square, std::uint64_t n) {
  const Descent s = step;
  const Compensation c = compensation;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float strength = kAdaptive ? StrengthOne(s, c, gradient[i], mean_square[i]) : c.lamda;
    const float move = CompensatedOne(s, strength, w[i], gradient[i], backup[i]);
    if (kMomentum) {
      velocity[i] = c.momentum * velocity[i] - move;
      w[i] += velocity[i];
    } else {
      w[i] -= move;
    }
    backup[i] = w[i];
  }
}

static void DcAsgdStep(const Descent& step, const Compensation& compensation, float* w,
                       const float* gradient, float* backup, float* velocity, float* mean_square,
                       std::uint64_t n) {
  const auto move = mean_square != nullptr
                        ? velocity != nullptr ? CompensatedStep<true, true>
                                              : CompensatedStep<true, false>
                    : velocity != nullptr ? CompensatedStep<false, true>
                                          : CompensatedStep<false, false>;
  move(step, compensation, w, gradient, backup, velocity, mean_square, n);
}
