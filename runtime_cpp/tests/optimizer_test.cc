// The optimizers against their formulas in float64, and the instructions that name them.
#include "core/optimizer.h"

#include <algorithm>
#include <stdexcept>

#include "tests/seeds.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;

struct Reference {
  double lr = 0.01, wd = 0, rescale = 1, clip = -1;
  double momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  std::vector<double> m = {}, v = {};
  int t = 0;

  double Clip(double g) const { return clip < 0 ? g : std::clamp(g, -clip, clip); }

  void Sgd(std::vector<double>& w, const std::vector<float>& g) {
    m.resize(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) {
      m[i] = momentum * m[i] - lr * (wd * w[i] + Clip(rescale * g[i]));
      w[i] += m[i];
    }
  }

  void Adam(std::vector<double>& w, const std::vector<float>& g) {
    m.resize(w.size());
    v.resize(w.size());
    ++t;
    const double rate = lr * std::sqrt(1 - std::pow(beta2, t)) / (1 - std::pow(beta1, t));
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double x = Clip(rescale * g[i] + wd * w[i]);
      m[i] = beta1 * m[i] + (1 - beta1) * x;
      v[i] = beta2 * v[i] + (1 - beta2) * x * x;
      w[i] -= rate * m[i] / (std::sqrt(v[i]) + epsilon);
    }
  }
};

void Compare(const std::string& text, Key key, bool adam, Reference reference, Random& random) {
  auto optimizer = Optimizer::Make(OptimizerSpec::Parse(text), key);
  std::vector<float> weight(17);
  for (float& w : weight) w = check::Uniform(random, -2, 2);
  std::vector<double> expected(weight.begin(), weight.end());
  for (int step = 0; step < 30; ++step) {
    std::vector<float> gradient(weight.size());
    for (float& g : gradient) g = check::Uniform(random, -3, 3);
    optimizer->Update(weight, gradient);
    if (adam) {
      reference.Adam(expected, gradient);
    } else {
      reference.Sgd(expected, gradient);
    }
    for (std::size_t i = 0; i < weight.size(); ++i) CHECK_NEAR(weight[i], expected[i], 1e-4);
  }
}

TEST(OptimizersFollowTheirFormulas) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    Compare("sgd\nlearning_rate 0.1", 0, false, {.lr = 0.1}, random);
    Compare("sgd", 0, false, {}, random);
    Compare("sgd\nlearning_rate 0.1\nmomentum 0.9\nwd 0.01", 0, false,
            {.lr = 0.1, .wd = 0.01, .momentum = 0.9}, random);
    Compare("sgd\nlearning_rate 0.05\nwd 0.1\nrescale_grad 0.25\nclip_gradient 0.4", 0, false,
            {.lr = 0.05, .wd = 0.1, .rescale = 0.25, .clip = 0.4}, random);
    Compare("sgd\nlearning_rate 0.1\nwd 0.1\nlr_mult.3 0.5\nwd_mult.3 0\nlr_mult.4 9", 3, false,
            {.lr = 0.05}, random);
    Compare("adam\nlearning_rate 0.02", 0, true, {.lr = 0.02}, random);
    Compare("adam\nlearning_rate 0.02\nbeta1 0.8\nbeta2 0.9\nepsilon 0.001\nwd 0.05\n"
            "rescale_grad 0.5\nclip_gradient 1",
            0, true,
            {.lr = 0.02, .wd = 0.05, .rescale = 0.5, .clip = 1, .beta1 = 0.8, .beta2 = 0.9,
             .epsilon = 1e-3},
            random);
  });
}

TEST(ShardsOfATensorMoveLikeTheTensor) {
  Random random(5);
  const OptimizerSpec spec = OptimizerSpec::Parse("adam\nlearning_rate 0.1\nwd 0.01");
  std::vector<float> whole(20);
  for (float& w : whole) w = check::Uniform(random, -1, 1);
  std::vector<float> cut = whole;
  auto together = Optimizer::Make(spec, 0), left = Optimizer::Make(spec, 0),
       right = Optimizer::Make(spec, 0);
  for (int step = 0; step < 5; ++step) {
    std::vector<float> gradient(20);
    for (float& g : gradient) g = check::Uniform(random, -1, 1);
    together->Update(whole, gradient);
    left->Update(std::span(cut).first(7), std::span(gradient).first(7));
    right->Update(std::span(cut).subspan(7), std::span(gradient).subspan(7));
  }
  CHECK(whole == cut);
}

TEST(InstructionsThatMakeNoSenseAreRefusedByName) {
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      OptimizerSpec::Parse(text);
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  CHECK_EQ(complaint("sgdd"), "unknown optimizer sgdd");
  CHECK_EQ(complaint(""), "unknown optimizer ");
  CHECK_EQ(complaint("sgd\nbeta1 0.9"), "optimizer sgd has no option beta1");
  CHECK_EQ(complaint("adam\nmomentum 0.9"), "optimizer adam has no option momentum");
  CHECK_EQ(complaint("sgd\nlearning_rate"), "optimizer sgd: bad option line 'learning_rate'");
  CHECK_EQ(complaint("sgd\nlearning_rate fast"),
           "optimizer sgd: bad option line 'learning_rate fast'");
  CHECK(!complaint("sgd\nlearning_rate 0.1 0.2").empty());
  CHECK(!complaint("sgd\nlearning_rate nan").empty());
  CHECK(!complaint("sgd\nlearning_rate 1e999").empty());
  for (const std::string& name : Optimizer::Names()) CHECK_EQ(complaint(name), "");
}

}  // namespace
}  // namespace geomx
