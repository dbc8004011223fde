// Optimizers compared with their formulas in float64, and instructions.
#include "core/optimizer.h"

#include <algorithm>
#include <functional>
#include <numbers>
#include <stdexcept>

#include "core/optimizers/schedule.h"
#include "tests/cluster.h"
#include "tests/seeds.h"

namespace geomx {
namespace {

using check::Between;
using check::Random;

// The state of one element in a formula.
struct Cell {
  double mean = 0, square = 0, velocity = 0;
};

// Updates one weight with its gradient (rescaled already); `t` counts updates from 1.
using Formula = std::function<void(double& w, double g, Cell& cell, int t)>;

double Clip(double g, double bound) { return std::clamp(g, -bound, bound); }

std::vector<float> Draw(std::size_t elements, double bound, Random& random) {
  std::vector<float> values(elements);
  for (float& value : values) value = check::Uniform(random, -bound, bound);
  return values;
}

void Compare(const std::string& text, Key key, const Formula& formula, Random& random) {
  auto optimizer = Optimizer::Make(OptimizerSpec::Parse(text), key);
  std::vector<float> weight = Draw(Between(random, 1, 40), 2, random);
  std::vector<double> expected(weight.begin(), weight.end());
  std::vector<Cell> cells(weight.size());
  for (int t = 1; t <= 30; ++t) {
    const std::vector<float> gradient = Draw(weight.size(), 3, random);
    optimizer->Update(weight, gradient);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      formula(expected[i], gradient[i], cells[i], t);
      CHECK_NEAR(weight[i], expected[i], 1e-4);
    }
  }
}

Formula Sgd(double lr, double wd = 0, double momentum = 0, double rescale = 1, double clip = 1e9) {
  return [=](double& w, double g, Cell& cell, int) {
    cell.velocity = momentum * cell.velocity - lr * (wd * w + Clip(rescale * g, clip));
    w += cell.velocity;
  };
}

TEST(DescentFollowsItsFormulas) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    Compare("sgd\nlearning_rate 0.1", 0, Sgd(0.1), random);
    Compare("sgd", 0, Sgd(0.01), random);
    Compare("sgd\nlearning_rate 0.1\nmomentum 0.9\nwd 0.01", 0, Sgd(0.1, 0.01, 0.9), random);
    Compare("sgd\nlearning_rate 0.05\nwd 0.1\nrescale_grad 0.25\nclip_gradient 0.4", 0,
            Sgd(0.05, 0.1, 0, 0.25, 0.4), random);
    Compare("sgd\nlearning_rate 0.1\nwd 0.1\nlr_mult.3 0.5\nwd_mult.3 0\nlr_mult.4 9", 3,
            Sgd(0.05), random);
    Compare("nag\nlearning_rate 0.1\nwd 0.2", 0, Sgd(0.1, 0.2), random);
    Compare("nag\nlearning_rate 0.05\nmomentum 0.8\nclip_gradient 2", 0,
            [](double& w, double g, Cell& cell, int) {
              cell.velocity = 0.8 * cell.velocity - 0.05 * Clip(g, 2);
              w += 0.8 * cell.velocity - 0.05 * Clip(g, 2);
            },
            random);
  });
}

TEST(AdaptiveOptimizersFollowTheirFormulas) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    const auto moments = [](double g, Cell& cell, double b1, double b2, int t) {
      cell.mean = b1 * cell.mean + (1 - b1) * g;
      cell.square = b2 * cell.square + (1 - b2) * g * g;
      return std::sqrt(1 - std::pow(b2, t)) / (1 - std::pow(b1, t));
    };
    Compare("adam\nlearning_rate 0.02", 0,
            [&](double& w, double g, Cell& cell, int t) {
              const double correction = moments(g, cell, 0.9, 0.999, t);
              w -= 0.02 * correction * cell.mean / (std::sqrt(cell.square) + 1e-8);
            },
            random);
    Compare("adam\nlearning_rate 0.02\nbeta1 0.8\nbeta2 0.9\nepsilon 0.001\nwd 0.05\n"
            "rescale_grad 0.5\nclip_gradient 1",
            0,
            [&](double& w, double g, Cell& cell, int t) {
              const double correction = moments(Clip(0.5 * g + 0.05 * w, 1), cell, 0.8, 0.9, t);
              w -= 0.02 * correction * cell.mean / (std::sqrt(cell.square) + 1e-3);
            },
            random);
    for (const bool correct : {false, true}) {
      Compare("adamw\nlearning_rate 0.02\nwd 0.3\nclip_gradient 1\ncorrect_bias " +
                  std::to_string(correct),
              0,
              [&](double& w, double g, Cell& cell, int t) {
                const double correction = moments(Clip(g, 1), cell, 0.9, 0.999, t);
                w -= 0.02 * ((correct ? correction : 1) * cell.mean /
                                 (std::sqrt(cell.square) + 1e-8) +
                             0.3 * w);
              },
              random);
    }
    Compare("rmsprop\nlearning_rate 0.01\ngamma1 0.8\nwd 0.1\nclip_weights 1.5", 0,
            [](double& w, double g, Cell& cell, int) {
              g += 0.1 * w;
              cell.square = 0.8 * cell.square + 0.2 * g * g;
              w = Clip(w - 0.01 * g / std::sqrt(cell.square + 1e-8), 1.5);
            },
            random);
    Compare("rmsprop\nlearning_rate 0.01\ncentered 1\ngamma1 0.8\ngamma2 0.7\nepsilon 0.01", 0,
            [](double& w, double g, Cell& cell, int) {
              cell.square = 0.8 * cell.square + 0.2 * g * g;
              cell.mean = 0.8 * cell.mean + 0.2 * g;
              cell.velocity = 0.7 * cell.velocity -
                              0.01 * g / std::sqrt(cell.square - cell.mean * cell.mean + 0.01);
              w += cell.velocity;
            },
            random);
    Compare("adagrad\nlearning_rate 0.1\nwd 0.1\neps 0.001\nrescale_grad 2", 0,
            [](double& w, double g, Cell& cell, int) {
              cell.square += 4 * g * g;
              w -= 0.1 * (2 * g / std::sqrt(cell.square + 1e-3) + 0.1 * w);
            },
            random);
  });
}

// Compares updates from three sources in random order, each with gradients of its last weights.
void CompareDelays(const std::string& options, bool adaptive, double lamda, double momentum,
                   Random& random) {
  auto optimizer =
      Optimizer::Make(OptimizerSpec::Parse("dcasgd\nlearning_rate 0.05\nwd 0.01" + options), 0);
  std::vector<float> weight = Draw(9, 2, random);
  const std::vector<double> initial(weight.begin(), weight.end());
  std::vector<double> expected = initial, velocity(weight.size());
  std::map<NodeId, std::vector<double>> backup, square;
  for (int step = 0; step < 30; ++step) {
    const NodeId source = 7 + Between(random, 0, 2);
    const std::vector<float> gradient = Draw(weight.size(), 2, random);
    optimizer->Update(weight, gradient, {.source = source});
    auto& seen = backup.try_emplace(source, initial).first->second;
    auto& mean = square.try_emplace(source, weight.size()).first->second;
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const double g = gradient[i];
      mean[i] = 0.9 * mean[i] + 0.1 * g * g;
      const double strength = adaptive ? lamda / std::sqrt(mean[i] + 1e-7) : lamda;
      const double w = expected[i];
      velocity[i] = momentum * velocity[i] -
                    0.05 * (g + 0.01 * w + strength * g * g * (w - seen[i]));
      expected[i] += velocity[i];
      CHECK_NEAR(weight[i], expected[i], 1e-4);
    }
    seen = expected;
  }
}

TEST(TheDelayOfEachSourceIsCompensated) {
  check::ForSeeds(10, [](std::uint64_t seed) {
    Random random(seed);
    for (const std::string known : {"", "\nsources 3"}) {
      CompareDelays(known, false, 0.04, 0, random);
      CompareDelays(known + "\nlamda 0.5\nmomentum 0.5", false, 0.5, 0.5, random);
      CompareDelays(known + "\nvariance 1\nm 0.9", true, 2, 0, random);
      CompareDelays(known + "\nvariance 1\nm 0.9\nlamda 1\nmomentum 0.5", true, 1, 0.5, random);
    }
    CompareDelays("\nlamda 0", false, 0, 0, random);
  });
}

TEST(UnknownSourcesStartFromTheCurrentWeights) {
  auto optimizer =
      Optimizer::Make(OptimizerSpec::Parse("dcasgd\nlearning_rate 1\nlamda 1\nsources 1"), 0);
  std::vector<float> weight = {1};
  optimizer->Update(weight, std::vector<float>{0.5f}, {.source = 4});
  optimizer->Update(weight, std::vector<float>{0.25f}, {.source = 5});
  CHECK_EQ(weight[0], 0.25f);
}

// A party that begins late has the weights of that moment, and not the initial ones; so has one that comes back.
TEST(TheDelayOfAPartyIsCountedFromTheValueThatItWasGiven) {
  for (const bool continues : {false, true}) {
    check::Plan plan;
    plan.parties = {1, 1};
    plan.rounds.together = false;
    plan.continues = continues;
    check::Cluster cluster(1, plan);
    const NodeId early = cluster.workers[0], late = cluster.workers[1];
    const auto request = [&](NodeId worker) {
      cluster.Do(worker, [](Node& node, Time now) { node.worker().Request(0, now); });
      cluster.Drive();
    };
    cluster.Declare(0, 1, {{.elements = 1}});
    cluster.Command("optimizer\ndcasgd\nlearning_rate 1\nlamda 1");
    cluster.Init(0, {1});
    request(early);
    cluster.Push(early, 0, {0.5f});
    cluster.Drive();
    request(late);
    CHECK_EQ(cluster.Value(late, 0).front(), 0.5f);
    cluster.Push(late, 0, {0.25f});
    cluster.Drive();
    CHECK_EQ(cluster.Value(late, 0).front(), 0.25f);
    cluster.Push(early, 0, {0.5f});
    cluster.Drive();
    CHECK_EQ(cluster.Value(early, 0).front(), 0.25f - 0.5f - 0.25f * (0.25f - 0.5f));
    check::CheckNoErrors(cluster);
  }
}

// Servers know how many will push: they do not keep the initial weights when all have.
TEST(InitialWeightsAreNotKeptWhenAllPartiesHavePushed) {
  constexpr std::uint32_t kMany = 1000;
  for (const bool together : {false, true}) {
    check::Plan plan;
    plan.parties = {1, 1};
    plan.rounds.together = together;
    check::Cluster cluster(1, plan);
    cluster.Declare(0, kMany, {{.elements = kMany}});
    cluster.Command("optimizer\ndcasgd");
    cluster.Init(0, std::vector<float>(kMany));
    cluster.RequestAll(0);
    cluster.Drive();
    for (const NodeId worker : cluster.workers) cluster.Push(worker, 0, std::vector<float>(kMany, 1.0f));
    cluster.Drive();
    const auto saved = cluster.node(cluster.globals.front()).Saved();
    CHECK_EQ(saved.size(), 1u);
    const std::size_t arrays = saved.front().optimizer.size() / (kMany * sizeof(float));
    CHECK_EQ(arrays, together ? 1u : 2u);  // the backups
  }
}

// The momentum of delayed_nag is of gradients only, and its periods begin with the first update.
TEST(DelayedMomentumMovesWithEveryPeriodOfUpdates) {
  const auto weights = [](const std::string& text) {
    auto optimizer = Optimizer::Make(OptimizerSpec::Parse(text), 0);
    std::vector<float> weight = {1, -2};
    Random gradients(3);
    for (int t = 0; t < 7; ++t) optimizer->Update(weight, Draw(2, 1, gradients));
    return weight;
  };
  const std::string three = "delayed_nag\nlearning_rate 0.1\nmomentum 0.9\ndelay 3\nwd 0.1";
  CHECK(weights(three) == weights(three + "\nbegin_num_update 4"));
  const std::string options = "\nlearning_rate 0.1\nmomentum 0.9";
  const auto delayed = weights("delayed_nag\ndelay 1" + options), nag = weights("nag" + options);
  for (std::size_t i = 0; i < nag.size(); ++i) CHECK_NEAR(delayed[i], nag[i], 1e-5);
}

TEST(TheMeanIsTakenBeforeAllOtherSteps) {
  Random random(3);
  for (const std::string& name : Optimizer::Names()) {
    const std::string options = "\nlearning_rate 0.1\nwd 0.1\nrescale_grad 0.5\nclip_gradient 0.3";
    auto sums = Optimizer::Make(OptimizerSpec::Parse(name + options + "\naverage 1"), 0);
    auto means = Optimizer::Make(OptimizerSpec::Parse(name + options), 0);
    std::vector<float> weight = Draw(10, 1, random), same = weight;
    for (const std::uint32_t count : {1u, 4u, 2u, 8u}) {
      std::vector<float> sum = Draw(10, 4, random), mean = sum;
      for (float& g : mean) g /= static_cast<float>(count);
      sums->Update(weight, sum, {.merge_count = count});
      means->Update(same, mean, {.merge_count = count});
    }
    CHECK(weight == same);
  }
}

TEST(UpdatesOfShardsEqualUpdatesOfTheTensor) {
  Random random(5);
  for (const std::string& name : Optimizer::Names()) {
    const OptimizerSpec spec = OptimizerSpec::Parse(
        name + "\nlearning_rate 0.1\nwd 0.01\nschedule.factor.step 2\nschedule.factor.factor 0.5");
    std::vector<float> whole = Draw(20, 1, random), cut = whole;
    auto together = Optimizer::Make(spec, 0), left = Optimizer::Make(spec, 0),
         right = Optimizer::Make(spec, 0);
    for (int step = 0; step < 5; ++step) {
      const std::vector<float> gradient = Draw(20, 1, random);
      together->Update(whole, gradient);
      left->Update(std::span(cut).first(7), std::span(gradient).first(7));
      right->Update(std::span(cut).subspan(7), std::span(gradient).subspan(7));
    }
    CHECK(whole == cut);
  }
}

TEST(SchedulesFollowTheirFormulas) {
  const auto follows = [](const std::map<std::string, double>& options, auto formula) {
    const auto schedule = Schedule::Make(options, 0.8);
    for (int t = 1; t <= 60; ++t) CHECK_NEAR(schedule->Rate(t), formula(t), 1e-12);
  };
  follows({{"schedule.factor.step", 10}, {"schedule.factor.factor", 0.5},
           {"schedule.factor.stop_factor_lr", 0.15}},
          [](int t) { return std::max(0.8 * std::pow(0.5, (t - 1) / 10), 0.15); });
  follows({{"schedule.multifactor.step.0", 5}, {"schedule.multifactor.step.1", 20},
           {"schedule.multifactor.factor", 0.1}},
          [](int t) { return t > 20 ? 0.008 : t > 5 ? 0.08 : 0.8; });
  follows({{"schedule.poly.max_update", 50}, {"schedule.poly.pwr", 3},
           {"schedule.poly.final_lr", 0.1}},
          [](int t) { return 0.1 + 0.7 * std::pow(1 - std::min(t, 50) / 50.0, 3); });
  follows({{"schedule.cosine.max_update", 50}, {"schedule.cosine.warmup_steps", 10},
           {"schedule.cosine.warmup_begin_lr", 0.2}},
          [](int t) {
            if (t < 10) return 0.2 + 0.06 * t;
            return 0.4 * (1 + std::cos(std::numbers::pi * (std::min(t, 50) - 10) / 40.0));
          });
  CHECK(Schedule::Make({{"momentum", 1}}, 0.1) == nullptr);
  // A schedule that starts late has the same value.
  CHECK_NEAR(Schedule::Make({{"schedule.factor.step", 2}, {"schedule.factor.factor", 0.5}}, 1)
                 ->Rate(9),
             0.0625, 1e-12);
}

TEST(InvalidInstructionsAreRefused) {
  const auto complaint = [](const std::string& text) -> std::string {
    try {
      OptimizerSpec::Parse(text);
      return "";
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
  };
  const std::string all = "; there is adagrad, adam, adamw, dcasgd, delayed_nag, nag, rmsprop, sgd";
  CHECK_EQ(complaint("sgdd"), "unknown optimizer sgdd" + all);
  CHECK_EQ(complaint(""), "unknown optimizer " + all);
  CHECK_EQ(complaint("sgd\nbeta1 0.9"),
           "optimizer sgd has no option beta1; it takes learning_rate, momentum, average, "
           "begin_num_update, clip_gradient, rescale_grad, wd, lr_mult.KEY, wd_mult.KEY, "
           "schedule.NAME.OPTION");
  CHECK(complaint("adam\nmomentum 0.9").starts_with("optimizer adam has no option momentum; it"));
  CHECK(complaint("adam\nlr_mult.x 1").starts_with("optimizer adam has no option lr_mult.x; it"));
  CHECK_EQ(complaint("sgd\nlearning_rate"), "optimizer sgd: bad option line 'learning_rate'");
  CHECK_EQ(complaint("sgd\nlearning_rate fast"),
           "optimizer sgd: bad option line 'learning_rate fast'");
  CHECK_EQ(complaint("sgd\nwd 1 2"), "optimizer sgd: bad option line 'wd 1 2'");
  CHECK(!complaint("sgd\nlearning_rate nan").empty());
  CHECK(!complaint("sgd\nlearning_rate 1e999").empty());
  CHECK_EQ(complaint("sgd\nbegin_num_update -1"), "begin_num_update must be 0 or more");
  CHECK_EQ(complaint("delayed_nag\ndelay 0.5"), "delay must be a whole number of updates, 1 or more");
  CHECK_EQ(complaint("sgd\nschedule.linear.step 3"),
           "unknown schedule linear; there is cosine, factor, multifactor, poly");
  CHECK_EQ(complaint("sgd\nschedule.poly.speed 3"),
           "schedule poly has no option speed; it takes final_lr, max_update, pwr, "
           "warmup_begin_lr, warmup_constant, warmup_steps, warmup_final_lr");
  CHECK(complaint("sgd\nschedule.factor.step.0 3").starts_with("schedule factor has no option"));
  CHECK(complaint("sgd\nschedule.poly 3").starts_with("schedule poly has no option ;"));
  CHECK_EQ(complaint("sgd\nschedule.poly.max_update 3\nschedule.cosine.max_update 3"),
           "schedules cosine and poly exclude each other");
  CHECK_EQ(complaint("sgd\nschedule.factor.factor 0.5"), "schedule.factor.step must be given");
  CHECK_EQ(complaint("sgd\nschedule.factor.step 0.5"),
           "schedule.factor.step must be a whole number from 1");
  CHECK_EQ(complaint("sgd\nschedule.factor.step 5\nschedule.factor.factor 2"),
           "schedule.factor.factor must be at most 1");
  CHECK_EQ(complaint("sgd\nschedule.multifactor.factor 0.5"),
           "schedule.multifactor.step.0 must be given");
  CHECK_EQ(complaint("sgd\nschedule.multifactor.step.0 5\nschedule.multifactor.step.1 5"),
           "the steps of schedule multifactor must increase");
  CHECK_EQ(complaint("sgd\nschedule.cosine.max_update 5\nschedule.cosine.warmup_steps 5"),
           "schedule.cosine.warmup_steps must be below max_update");
  CHECK_EQ(complaint("sgd\nschedule.factor.step 5\nschedule.factor.warmup_begin_lr 5"),
           "schedule.factor.warmup_begin_lr must not be above the rate after the warm-up");
  for (const std::string& name : Optimizer::Names()) CHECK_EQ(complaint(name), "");
}

// ---- saving and loading ----

const char* const kSaved[] = {
    "sgd", "sgd\nmomentum 0.9", "nag\nmomentum 0.8", "adam\nwd 0.01", "adamw\nwd 0.1",
    "rmsprop", "rmsprop\ncentered 1", "adagrad", "dcasgd\nmomentum 0.5\nvariance 1\nsources 2",
    "delayed_nag\nmomentum 0.7\ndelay 5",
    "adam\nschedule.factor.step 3\nschedule.factor.factor 0.5",
    "sgd\nmomentum 0.9\nschedule.cosine.max_update 20\nschedule.cosine.warmup_steps 4"};

// Returns `weight` after 12 updates, with the state saved after `when` of them and loaded by another
// optimizer.
std::vector<float> Train(const OptimizerSpec& spec, std::vector<float> weight, int when, Random random) {
  auto optimizer = Optimizer::Make(spec, 0);
  for (int t = 0; t < 12; ++t) {
    if (t == when) {
      const std::vector<std::byte> saved = optimizer->Save();
      optimizer = Optimizer::Make(spec, 0);
      optimizer->Load(saved, weight.size());
      CHECK(optimizer->Save() == saved);
    }
    const std::vector<float> gradient = Draw(weight.size(), 3, random);
    optimizer->Update(weight, gradient, {.source = static_cast<NodeId>(random() % 3)});
  }
  return weight;
}

TEST(OptimizersContinueFromTheirSavedState) {
  check::ForSeeds(30, [](std::uint64_t seed) {
    Random random(seed);
    for (const char* text : kSaved) {
      const OptimizerSpec spec = OptimizerSpec::Parse(text);
      const std::vector<float> weight = Draw(Between(random, 1, 200), 2, random);
      const int when = static_cast<int>(Between(random, 0, 11));
      const Random gradients(random());
      CHECK(Train(spec, weight, when, gradients) == Train(spec, weight, -1, gradients));
    }
  });
}

std::string Refusal(const OptimizerSpec& spec, Bytes saved, std::uint64_t elements) {
  try {
    Optimizer::Make(spec, 0)->Load(saved, elements);
  } catch (const StateError& error) {
    return error.what();
  }
  return {};
}

TEST(InvalidStatesAreRefused) {
  check::ForSeeds(20, [](std::uint64_t seed) {
    Random random(seed);
    const auto spec = OptimizerSpec::Parse(kSaved[Between(random, 0, std::size(kSaved) - 1)]);
    auto optimizer = Optimizer::Make(spec, 0);
    std::vector<float> weight = Draw(Between(random, 2, 9), 2, random);
    optimizer->Update(weight, Draw(weight.size(), 3, random));
    const std::vector<std::byte> saved = optimizer->Save();
    CHECK_EQ(Refusal(spec, saved, weight.size()), "");
    for (std::size_t i = 0; i < saved.size(); ++i) {
      std::vector<std::byte> bad = saved;
      bad[i] ^= std::byte(1 << Between(random, 0, 7));
      CHECK(!Refusal(spec, bad, weight.size()).empty());
      CHECK(!Refusal(spec, Bytes(saved).first(i), weight.size()).empty());
    }
    const auto other = OptimizerSpec::Parse(spec.name == "nag" ? "sgd" : "nag");
    CHECK_EQ(Refusal(other, saved, weight.size()),
             "it is the state of '" + spec.name + "', and not of '" + other.name + "'");
  });
  auto adam = Optimizer::Make(OptimizerSpec::Parse("adam"), 0);
  std::vector<float> weight{1, 2};
  adam->Update(weight, std::vector<float>{1, 1});
  CHECK_EQ(Refusal(OptimizerSpec::Parse("adam"), adam->Save(), 3),
           "it is the state of 2 elements, and the tensor has 3");
}

// Decoupled weight decay is a share of the weights, however many parties make the steps.
TEST(DecayOfAllPartiesIsThatOfOne) {
  constexpr float kRate = 0.1f, kDecay = 0.5f;
  const std::vector<float> start = {1, -2, 4};
  const auto stepped = [&](const std::string& name, const std::vector<std::uint32_t>& parties, float decay) {
    check::Plan plan;
    plan.parties = parties;
    plan.rounds.update_at_party = plan.rounds.step_first = true;
    for (const std::uint32_t workers : parties) plan.rounds.workers += workers;
    check::Cluster cluster(5, plan);
    cluster.Declare(0, 3, {{.elements = 3}});
    cluster.Command("optimizer\n" + name + "\nlearning_rate " + std::to_string(kRate) + "\nwd " +
                    std::to_string(decay));
    cluster.Init(0, start);
    cluster.RequestAll(0);
    cluster.Drive();
    for (const NodeId worker : cluster.workers) cluster.Push(worker, 0, {static_cast<float>(worker), -1, 2});
    cluster.Drive();
    CHECK_EQ(cluster.Count(Event::Kind::kPeerError), 0u);
    return cluster.Value(cluster.workers.front(), 0);
  };
  for (const std::string name : {"adamw", "adagrad", "sgd"}) {
    for (const std::vector<std::uint32_t>& parties : {std::vector<std::uint32_t>{2}, {1, 1, 1, 1}, {1, 3}}) {
      const std::vector<float> with = stepped(name, parties, kDecay), without = stepped(name, parties, 0);
      for (std::size_t i = 0; i < start.size(); ++i) {
        CHECK_NEAR(with[i] - without[i], -kRate * kDecay * start[i], 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace geomx
