// The optimizers' steps at one level (steps.h); part of a level, see table.h. Plain loops without a
// branch per element, each array read and written once.

static inline float Within(float bound, float value) {
  const float above = value < -bound ? -bound : value;
  return bound < above ? bound : above;
}

static void SgdStep(const Descent& step, float* __restrict w, const float* __restrict gradient,
                    std::uint64_t n) {
  const Descent s = step;
  const float decay = s.rate * s.wd;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    w[i] -= decay * w[i] + s.rate * g;
  }
}

static void MomentumStep(const Descent& step, float momentum, float* __restrict w,
                         const float* __restrict gradient, float* __restrict velocity,
                         std::uint64_t n) {
  const Descent s = step;
  const float decay = s.rate * s.wd;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    velocity[i] = momentum * velocity[i] - decay * w[i] - s.rate * g;
    w[i] += velocity[i];
  }
}

// MXNet's operator writes the weights first, so the decay in the velocity is that of the new ones.
static void NesterovStep(const Descent& step, float momentum, float* __restrict w,
                         const float* __restrict gradient, float* __restrict velocity,
                         std::uint64_t n) {
  const Descent s = step;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    const float kept = momentum * velocity[i];
    w[i] = w[i] - kept + (momentum + 1.0f) * (kept - s.rate * (g + s.wd * w[i]));
    velocity[i] = kept - s.rate * (g + s.wd * w[i]);
  }
}

static void AdamStep(const Descent& step, const Moments& moments, float* __restrict w,
                     const float* __restrict gradient, float* __restrict mean,
                     float* __restrict square, std::uint64_t n) {
  const Descent s = step;
  const Moments m = moments;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i] + s.wd * w[i]);
    mean[i] = m.beta1 * mean[i] + (1.0f - m.beta1) * g;
    square[i] = m.beta2 * square[i] + (1.0f - m.beta2) * g * g;
    w[i] -= s.rate * mean[i] / (__builtin_sqrtf(square[i]) + m.epsilon);
  }
}

static void AdamWStep(const Descent& step, const Moments& moments, float correction,
                      float* __restrict w, const float* __restrict gradient,
                      float* __restrict mean, float* __restrict square, std::uint64_t n) {
  const Descent s = step;
  const Moments m = moments;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    mean[i] = m.beta1 * mean[i] + (1.0f - m.beta1) * g;
    square[i] = m.beta2 * square[i] + (1.0f - m.beta2) * g * g;
    w[i] -= s.rate *
            (correction * mean[i] / (__builtin_sqrtf(square[i]) + m.epsilon) + s.wd * w[i]);
  }
}

static void RmsPropStep(const Descent& step, const RmsProp& rms, float* __restrict w,
                        const float* __restrict gradient, float* __restrict square,
                        std::uint64_t n) {
  const Descent s = step;
  const RmsProp r = rms;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i] + s.wd * w[i]);
    square[i] = r.gamma * square[i] + (1.0f - r.gamma) * (g * g);
    w[i] = Within(r.largest, w[i] - s.rate * (g / __builtin_sqrtf(square[i] + r.epsilon)));
  }
}

static void CenteredStep(const Descent& step, const RmsProp& rms, float* __restrict w,
                         const float* __restrict gradient, float* __restrict square,
                         float* __restrict mean, float* __restrict velocity, std::uint64_t n) {
  const Descent s = step;
  const RmsProp r = rms;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i] + s.wd * w[i]);
    square[i] = r.gamma * square[i] + (1.0f - r.gamma) * g * g;
    mean[i] = r.gamma * mean[i] + (1.0f - r.gamma) * g;
    velocity[i] = r.momentum * velocity[i] -
                  s.rate * g / __builtin_sqrtf(square[i] - mean[i] * mean[i] + r.epsilon);
    w[i] = Within(r.largest, w[i] + velocity[i]);
  }
}

static void AdaGradStep(const Descent& step, float epsilon, float* __restrict w,
                        const float* __restrict gradient, float* __restrict history,
                        std::uint64_t n) {
  const Descent s = step;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    history[i] += g * g;
    w[i] -= s.rate * (g / __builtin_sqrtf(history[i] + epsilon) + s.wd * w[i]);
  }
}

template <bool kAdaptive, bool kMomentum>
static void CompensatedStep(const Descent& step, const Compensation& compensation,
                            float* __restrict w, const float* __restrict gradient,
                            float* __restrict backup, float* __restrict velocity,
                            float* __restrict mean_square, std::uint64_t n) {
  const Descent s = step;
  const Compensation c = compensation;
  for (std::uint64_t i = 0; i < n; ++i) {
    const float g = Within(s.clip, s.rescale * gradient[i]);
    float strength = c.lamda;
    if (kAdaptive) {
      mean_square[i] = c.decay * mean_square[i] + (1.0f - c.decay) * g * g;
      strength = c.lamda / __builtin_sqrtf(mean_square[i] + c.epsilon);
    }
    const float move = s.rate * (g + s.wd * w[i] + strength * g * g * (w[i] - backup[i]));
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
