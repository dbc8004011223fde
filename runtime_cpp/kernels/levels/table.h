// One level of the kernels' inner loops. loops.cc includes this once per level, inside that level's
// namespace and with its instructions allowed: plain loops that the compiler turns into vector
// instructions, and intrinsics where it does not. GEOMX_LEVEL is 0 (portable), 2 (AVX2) or 5
// (AVX-512). Nothing but the parts may be included from here, hence no guards either.
#include "kernels/levels/half.h"
#include "kernels/levels/sparse.h"
#include "kernels/levels/steps.h"
#include "kernels/levels/sums.h"
#include "kernels/levels/ternary.h"

static constexpr Loops kLoops = {
    .narrow = Narrow,
    .widen = WidenInto<false>,
    .widen_add = WidenInto<true>,
    .add = Add,
    .add_bytes = AddBytes,
    .squares = Squares,
    .magnitudes = Magnitudes,
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
