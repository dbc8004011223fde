#include "kernels/steps.h"

#include "kernels/loops.h"
#include "kernels/thread_pool.h"

namespace geomx::kernels {
namespace {

float* From(float* values, std::uint64_t first) {
  return values == nullptr ? nullptr : values + first;
}

}  // namespace

void Sgd(const Descent& step, float* weight, const float* gradient, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.sgd(step, weight + first, gradient + first, count);
  });
}

void Momentum(const Descent& step, float momentum, float* weight, const float* gradient,
              float* velocity, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.momentum(step, momentum, weight + first, gradient + first, velocity + first, count);
  });
}

void Nesterov(const Descent& step, float momentum, float* weight, const float* gradient,
              float* velocity, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.nesterov(step, momentum, weight + first, gradient + first, velocity + first, count);
  });
}

void Adam(const Descent& step, const Moments& moments, float* weight, const float* gradient,
          float* mean, float* square, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.adam(step, moments, weight + first, gradient + first, mean + first, square + first,
               count);
  });
}

void AdamW(const Descent& step, const Moments& moments, float correction, float* weight,
           const float* gradient, float* mean, float* square, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.adamw(step, moments, correction, weight + first, gradient + first, mean + first,
                square + first, count);
  });
}

void RmsPropPlain(const Descent& step, const RmsProp& rms, float* weight, const float* gradient,
                  float* square, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.rmsprop(step, rms, weight + first, gradient + first, square + first, count);
  });
}

void RmsPropCentered(const Descent& step, const RmsProp& rms, float* weight, const float* gradient,
                     float* square, float* mean, float* velocity, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.rmsprop_centered(step, rms, weight + first, gradient + first, square + first,
                           mean + first, velocity + first, count);
  });
}

void AdaGrad(const Descent& step, float epsilon, float* weight, const float* gradient,
             float* history, std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.adagrad(step, epsilon, weight + first, gradient + first, history + first, count);
  });
}

void DcAsgd(const Descent& step, const Compensation& compensation, float* weight,
            const float* gradient, float* backup, float* velocity, float* mean_square,
            std::uint64_t n) {
  const Loops& loops = TheLoops();
  ForBlocks(n, [&](std::uint64_t first, std::uint64_t count) {
    loops.dcasgd(step, compensation, weight + first, gradient + first, backup + first,
                 From(velocity, first), From(mean_square, first), count);
  });
}

}  // namespace geomx::kernels
