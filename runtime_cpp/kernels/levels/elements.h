// The kernels' arithmetic on one element, shared by all vector levels and the devices, so that they
// agree to the last bit. Part of a level (table.h) and of the device code (cuda/elements.h), which
// both define GEOMX_EACH, BitsOf, FloatOf and RootOf first.

GEOMX_EACH float Within(float bound, float value) {
  const float above = value < -bound ? -bound : value;
  return bound < above ? bound : above;
}

// ---- bfloat.h ----

// Rounding is an addition that carries into the exponent; a NaN must not become infinite by it.
GEOMX_EACH std::uint16_t NarrowBfloatOne(float value) {
  const std::uint32_t bits = BitsOf(value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const bool nan = static_cast<std::int32_t>(bits & 0x7fffffffu) > 0x7f800000;
  return static_cast<std::uint16_t>((nan ? bits | 0x00400000u : rounded) >> 16);
}

GEOMX_EACH float WidenBfloatOne(std::uint16_t brief) {
  return FloatOf(std::uint32_t{brief} << 16);
}

// ---- sparse.h ----

GEOMX_EACH float MovedBy(float scale, float momentum, float term, float velocity) {
  const float step = scale * term + momentum * velocity;
  return static_cast<std::int32_t>(BitsOf(step) & 0x7fffffffu) < 0x00800000 ? 0.0f : step;
}

// ---- ternary.h ----

// Returns the code of a value, and subtracts the code's value from it. There is no code for NaN, unless the scale is
// NaN, which then is sent for all values. What is left of a value is not kept if it is infinite or NaN: the same would
// be sent again in every round.
GEOMX_EACH std::uint32_t QuantiseOne(std::uint32_t scale_bits, float threshold, float& value) {
  const std::uint32_t bits = BitsOf(value);
  const std::int32_t most = (scale_bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffff : 0x7f800000;
  const std::uint32_t large = FloatOf(bits & 0x7fffffffu) < threshold ? 0u : ~0u;
  const std::uint32_t says = static_cast<std::int32_t>(bits & 0x7fffffffu) > most ? 0u : large;
  const std::uint32_t sign = bits & 0x80000000u;
  const float left = value - FloatOf((scale_bits | sign) & says);
  value = static_cast<std::int32_t>(BitsOf(left) & 0x7fffffffu) < 0x7f800000 ? left : 0.0f;
  return (3u - (sign >> 31)) & says;
}

// ---- steps.h ----

GEOMX_EACH void SgdOne(const Descent& s, float& w, float gradient) {
  const float g = Within(s.clip, s.rescale * gradient);
  w -= s.rate * s.wd * w + s.rate * g;
}

GEOMX_EACH void MomentumOne(const Descent& s, float momentum, float& w, float gradient,
                            float& velocity) {
  const float g = Within(s.clip, s.rescale * gradient);
  velocity = momentum * velocity - s.rate * s.wd * w - s.rate * g;
  w += velocity;
}

// MXNet's operator writes the weights first, so the decay in the velocity is that of the new ones.
GEOMX_EACH void NesterovOne(const Descent& s, float momentum, float& w, float gradient,
                            float& velocity) {
  const float g = Within(s.clip, s.rescale * gradient);
  const float kept = momentum * velocity;
  w = w - kept + (momentum + 1.0f) * (kept - s.rate * (g + s.wd * w));
  velocity = kept - s.rate * (g + s.wd * w);
}

GEOMX_EACH void AdamOne(const Descent& s, const Moments& m, float& w, float gradient, float& mean,
                        float& square) {
  const float g = Within(s.clip, s.rescale * gradient + s.wd * w);
  mean = m.beta1 * mean + (1.0f - m.beta1) * g;
  square = m.beta2 * square + (1.0f - m.beta2) * g * g;
  w -= s.rate * mean / (RootOf(square) + m.epsilon);
}

GEOMX_EACH void AdamWOne(const Descent& s, const Moments& m, float correction, float& w,
                         float gradient, float& mean, float& square) {
  const float g = Within(s.clip, s.rescale * gradient);
  mean = m.beta1 * mean + (1.0f - m.beta1) * g;
  square = m.beta2 * square + (1.0f - m.beta2) * g * g;
  w -= s.rate * (correction * mean / (RootOf(square) + m.epsilon) + s.wd * w);
}

GEOMX_EACH void RmsPropOne(const Descent& s, const RmsProp& r, float& w, float gradient,
                           float& square) {
  const float g = Within(s.clip, s.rescale * gradient + s.wd * w);
  square = r.gamma * square + (1.0f - r.gamma) * (g * g);
  w = Within(r.largest, w - s.rate * (g / RootOf(square + r.epsilon)));
}

GEOMX_EACH void CenteredOne(const Descent& s, const RmsProp& r, float& w, float gradient,
                            float& square, float& mean, float& velocity) {
  const float g = Within(s.clip, s.rescale * gradient + s.wd * w);
  square = r.gamma * square + (1.0f - r.gamma) * g * g;
  mean = r.gamma * mean + (1.0f - r.gamma) * g;
  velocity = r.momentum * velocity - s.rate * g / RootOf(square - mean * mean + r.epsilon);
  w = Within(r.largest, w + velocity);
}

GEOMX_EACH void AdaGradOne(const Descent& s, float epsilon, float& w, float gradient,
                           float& history) {
  const float g = Within(s.clip, s.rescale * gradient);
  history += g * g;
  w -= s.rate * (g / RootOf(history + epsilon) + s.wd * w);
}

// The strength of the compensation for staleness, where it depends on the gradients' mean square.
GEOMX_EACH float StrengthOne(const Descent& s, const Compensation& c, float gradient,
                             float& mean_square) {
  const float g = Within(s.clip, s.rescale * gradient);
  mean_square = c.decay * mean_square + (1.0f - c.decay) * g * g;
  return c.lamda / RootOf(mean_square + c.epsilon);
}

// The amount to subtract from the weight.
GEOMX_EACH float CompensatedOne(const Descent& s, float strength, float w, float gradient,
                                float backup) {
  const float g = Within(s.clip, s.rescale * gradient);
  return s.rate * (g + s.wd * w + strength * g * g * (w - backup));
}
