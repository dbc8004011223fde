// One level of the kernels' inner loops. loops.cc includes this once per level, inside that level's
// namespace and with its instructions allowed: plain loops that the compiler turns into vector
// instructions, and intrinsics where it does not. GEOMX_LEVEL is 0 (portable), 2 (AVX2) or 5
// (AVX-512). Only the parts may be included here, hence no include guards.
#define GEOMX_EACH static inline
GEOMX_EACH std::uint32_t BitsOf(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return bits;
}
GEOMX_EACH float FloatOf(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
GEOMX_EACH float RootOf(float value) { return __builtin_sqrtf(value); }
// Element `i` of values that begin at any address, as those of a frame do.
template <class Value>
GEOMX_EACH Value At(const std::byte* values, std::uint64_t i) {
  Value value;
  __builtin_memcpy(&value, values + i * sizeof value, sizeof value);
  return value;
}
#include "kernels/levels/elements.h"
#undef GEOMX_EACH

#include "kernels/levels/bfloat.h"
#include "kernels/levels/cosines.h"
#include "kernels/levels/half.h"
#include "kernels/levels/integers.h"
#include "kernels/levels/sparse.h"
#include "kernels/levels/steps.h"
#include "kernels/levels/sums.h"
#include "kernels/levels/ternary.h"

static constexpr Loops kLoops = {
    .narrow = Narrow,
    .widen = WidenInto<false>,
    .widen_add = WidenInto<true>,
    .narrow_bfloat = NarrowBfloat,
    .widen_bfloat = WidenBfloatInto<false>,
    .widen_bfloat_add = WidenBfloatInto<true>,
    .cosines = TransformTile<false>,
    .cosines_back = TransformTile<true>,
    .encode_integers = EncodeIntegersIn,
    .decode_integers = DecodeIntegersInto<false>,
    .decode_integers_add = DecodeIntegersInto<true>,
    .add = Add,
    .add_bytes = AddBytes,
    .squares = Squares,
    .magnitudes = Magnitudes,
    .finite = Finite,
    .norms = BothNorms,
    .accumulate = AccumulateLarge,
    .find = FindLarge,
    .all_below = AllBelow,
    .quantise = QuantiseAll,
    .worth = WorthInto<false>,
    .worth_add = WorthInto<true>,
    .sgd = SgdStep,
    .momentum = MomentumStep,
    .nesterov = NesterovStep,
    .adam = AdamStep,
    .adamw = AdamWStep,
    .rmsprop = RmsPropStep,
    .rmsprop_centered = CenteredStep,
    .adagrad = AdaGradStep,
    .dcasgd = DcAsgdStep,
};
