#include "core/optimizer.h"

#include <cmath>
#include <sstream>
#include <stdexcept>

#include "core/optimizers/family.h"

namespace geomx {
namespace {

// Marks an option without a default that may be absent; the optimizer handles its absence.
constexpr double kNoDefault = std::numeric_limits<double>::quiet_NaN();

constexpr std::string_view kKind = "optimizer";

using Options = std::map<std::string, double>;

struct Member {
  std::unique_ptr<Optimizer> (*make)(const OptimizerSpec& spec, Key key);
  double learning_rate;
  Options own;
};

// Every optimizer, with the options that only some have, at MXNet's defaults.
const std::map<std::string, Member>& Family() {
  static const std::map<std::string, Member> family = {
      {"sgd", {MakeSgd, 0.01, {{"momentum", 0}}}},
      {"nag", {MakeNag, 0.01, {{"momentum", 0}}}},
      {"adam",
       {MakeAdam,
        0.001,
        {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"late_epsilon", 0}}}},
      {"adamw",
       {MakeAdamW,
        0.001,
        {{"beta1", 0.9},
         {"beta2", 0.999},
         {"epsilon", 1e-8},
         {"late_epsilon", 0},
         {"correct_bias", 1}}}},
      {"rmsprop",
       {MakeRmsProp,
        0.001,
        {{"gamma1", 0.9},
         {"gamma2", 0.9},
         {"epsilon", 1e-8},
         {"centered", 0},
         {"clip_weights", -1}}}},
      {"adagrad", {MakeAdaGrad, 0.01, {{"eps", 1e-7}}}},
      {"delayed_nag", {MakeDelayedNag, 0.01, {{"momentum", 0}, {"delay", 1}}}},
      {"dcasgd",
       {MakeDcAsgd,
        0.01,
        {{"momentum", 0},
         {"lamda", kNoDefault},
         {"variance", 0},
         {"m", 0.95},
         {"eps", 1e-7},
         {"sources", 0}}}}};
  return family;
}

const Options kCommon = {{"wd", 0},      {"rescale_grad", 1},    {"clip_gradient", -1},
                         {"average", 0}, {"begin_num_update", 0}};

bool OfOneKey(const std::string& option) {
  for (const std::string prefix : {"lr_mult.", "wd_mult."}) {
    if (option.starts_with(prefix) && option.size() > prefix.size() &&
        option.find_first_not_of("0123456789", prefix.size()) == std::string::npos) {
      return true;
    }
  }
  return false;
}

// A plugin's optimizer has the common options only; its learning rate is always given.
const Member& MemberOf(const OptimizerSpec& spec) {
  static const Member plugin = {nullptr, 0.01, {}};
  if (spec.factory) return plugin;
  const std::string& name = spec.name;
  const auto found = Family().find(name);
  if (found != Family().end()) return found->second;
  std::string all;
  for (const std::string& other : Optimizer::Names()) all += (all.empty() ? "" : ", ") + other;
  throw std::invalid_argument("unknown optimizer " + name + "; there is " + all);
}

std::string Allowed(const Member& member) {
  std::string names = "learning_rate";
  for (const Options& options : {member.own, kCommon}) {
    for (const auto& [name, value] : options) names += ", " + name;
  }
  return names + ", lr_mult.KEY, wd_mult.KEY, schedule.NAME.OPTION";
}

double OfKey(const OptimizerSpec& spec, const std::string& multiplier, Key key) {
  const auto found = spec.options.find(multiplier + std::to_string(key));
  return found == spec.options.end() ? 1.0 : found->second;
}

}  // namespace

ElementWise::ElementWise(const OptimizerSpec& spec, Key key)
    : name_(spec.name),
      rate_(spec.options.at("learning_rate")),
      rate_multiplier_(OfKey(spec, "lr_mult.", key)),
      schedule_(Schedule::Make(spec.options, rate_)),
      wd_(static_cast<float>(spec.options.at("wd") * OfKey(spec, "wd_mult.", key))),
      rescale_(spec.options.at("rescale_grad")),
      clip_(Bound(spec.options.at("clip_gradient"))),
      average_(spec.options.at("average") != 0),
      count_(0) {
  const double begin = spec.options.at("begin_num_update");
  if (!(begin >= 0 && begin <= kLargestCount)) {
    throw std::invalid_argument("begin_num_update must be 0 or more");
  }
  count_ = static_cast<std::uint64_t>(begin);
}

void ElementWise::Exchange(OptimizerArchive& archive) {
  archive.Name(name_);
  archive.Number(count_);
  ExchangeOwn(archive);
}

void ElementWise::UpdateOn(const kernels::DeviceContext& device, std::span<float> weight,
                           std::span<const float> gradient, const GradientSource& from) {
  ++count_;
  const double rate = schedule_ ? schedule_->Rate(count_) : rate_;
  const double parts = average_ ? std::max(from.merge_count, 1u) : 1u;
  const Step step{.rate = rate * rate_multiplier_,
                  .wd = wd_,
                  .rescale = static_cast<float>(rescale_ / parts),
                  .clip = clip_,
                  .count = count_,
                  .source = from.source};
  last_decay_ = step.Descent().rate * wd_;
  Apply(device, weight.data(), gradient.data(), weight.size(), step);
}

OptimizerSpec OptimizerSpec::Parse(const std::string& text, const OptimizerFactories& plugins) {
  std::istringstream lines(text);
  OptimizerSpec spec;
  std::getline(lines, spec.name);
  if (const auto found = plugins.find(spec.name); found != plugins.end()) {
    spec.factory = found->second;
  }
  const Member& member = MemberOf(spec);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string option, more;
    double value = 0;
    if (!(words >> option >> value) || words >> more || !std::isfinite(value)) {
      throw std::invalid_argument("optimizer " + spec.name + ": bad option line '" + line + "'");
    }
    if (option != "learning_rate" && !member.own.contains(option) && !kCommon.contains(option) &&
        !OfOneKey(option) && !Schedule::IsOption(option)) {
      throw std::invalid_argument("optimizer " + spec.name + " has no option " + option +
                                  "; it takes " + Allowed(member));
    }
    spec.options[option] = value;
  }
  Optimizer::Make(spec, 0);
  return spec;
}

void OptimizerSpec::ExpectSources(std::size_t count) {
  if (MemberOf(*this).own.contains("sources")) options.try_emplace("sources", static_cast<double>(count));
}

void OptimizerSpec::Exchange(Archive& archive, const OptimizerFactories& plugins) {
  archive(name, options);
  if (!archive.loading()) return;
  if (const auto found = plugins.find(name); found != plugins.end()) factory = found->second;
  try {
    Optimizer::Make(*this, 0);
  } catch (const std::invalid_argument& error) {
    throw StateError(error.what());
  }
}

std::vector<std::byte> Optimizer::Save() {
  FieldWriter fields;
  OptimizerArchive archive(fields);
  Exchange(archive);
  return SealState(kKind, fields);
}

void Optimizer::Load(Bytes saved, std::uint64_t elements) {
  StateReader fields = UnsealState(kKind, saved);
  OptimizerArchive archive(fields, elements);
  Exchange(archive);
  fields.End();
}

std::unique_ptr<Optimizer> Optimizer::Make(const OptimizerSpec& spec, Key key) {
  const Member& member = MemberOf(spec);
  OptimizerSpec complete = spec;
  complete.options.emplace("learning_rate", member.learning_rate);
  complete.options.insert(member.own.begin(), member.own.end());
  complete.options.insert(kCommon.begin(), kCommon.end());
  return spec.factory ? spec.factory->Make(complete, key) : member.make(complete, key);
}

std::vector<std::string> Optimizer::Names() {
  std::vector<std::string> names;
  for (const auto& [name, member] : Family()) names.push_back(name);
  return names;
}

}  // namespace geomx
