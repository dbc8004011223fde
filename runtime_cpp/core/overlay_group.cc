#include "core/overlay_group.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace geomx {
namespace {

// float64 holds ids and counts exactly.
template <class Integer>
bool Read(double number, Integer& out) {
  constexpr double kLeast = static_cast<double>(std::numeric_limits<Integer>::min());
  constexpr double kMost = std::min(static_cast<double>(std::numeric_limits<Integer>::max()), 9e15);
  if (!(number >= kLeast && number <= kMost) || number != std::floor(number)) return false;
  out = static_cast<Integer>(number);
  return true;
}

constexpr double kPlan = 2;           // orders begin with their direction, plans with this and theirs
constexpr std::size_t kPlanHead = 5;  // numbers before the targets
constexpr std::size_t kPlanRow = 4;   // numbers of a shard

}  // namespace

std::vector<double> OverlayReport::Pack() const {
  std::vector<double> numbers = {static_cast<double>(what),
                                 static_cast<double>(root),
                                 static_cast<double>(key),
                                 static_cast<double>(shard),
                                 static_cast<double>(round),
                                 static_cast<double>(priority),
                                 from ? static_cast<double>(*from) : -1.0,
                                 static_cast<double>(bytes),
                                 static_cast<double>(spread)};
  numbers.insert(numbers.end(), members.begin(), members.end());
  return numbers;
}

std::optional<OverlayReport> OverlayReport::Unpack(std::span<const double> numbers) {
  OverlayReport report;
  std::uint8_t what = 0;
  if (numbers.size() < 9 || !Read(numbers[0], what) ||
      what > static_cast<std::uint8_t>(What::kHas) || !Read(numbers[1], report.root) ||
      !Read(numbers[2], report.key) || !Read(numbers[3], report.shard) ||
      !Read(numbers[4], report.round) || !Read(numbers[5], report.priority) ||
      !Read(numbers[7], report.bytes) || !Read(numbers[8], report.spread) || report.spread < 0) {
    return std::nullopt;
  }
  report.what = static_cast<What>(what);
  NodeId id = 0;
  if (numbers[6] != -1.0) {
    if (!Read(numbers[6], id)) return std::nullopt;
    report.from = id;
  }
  for (const double number : numbers.subspan(9)) {
    if (!Read(number, id)) return std::nullopt;
    report.members.push_back(id);
  }
  return report;
}

std::vector<double> OverlayOrder::Pack() const {
  return {static_cast<double>(direction), static_cast<double>(root),  static_cast<double>(key),
          static_cast<double>(shard),     static_cast<double>(round), static_cast<double>(target)};
}

std::optional<OverlayOrder> OverlayOrder::Unpack(std::span<const double> numbers) {
  OverlayOrder order;
  std::uint8_t direction = 0;
  if (numbers.size() != 6 || !Read(numbers[0], direction) || direction > 1 ||
      !Read(numbers[1], order.root) || !Read(numbers[2], order.key) ||
      !Read(numbers[3], order.shard) || !Read(numbers[4], order.round) ||
      !Read(numbers[5], order.target)) {
    return std::nullopt;
  }
  order.direction = static_cast<Direction>(direction);
  return order;
}

std::vector<double> OverlayPlan::Pack() const {
  std::vector<double> numbers = {kPlan + static_cast<double>(direction), static_cast<double>(root),
                                 static_cast<double>(awaited), reports ? 1.0 : 0.0,
                                 static_cast<double>(targets.size())};
  numbers.insert(numbers.end(), targets.begin(), targets.end());
  for (const Rounds& each : shards) {
    for (const std::uint32_t number : {each.key, each.shard, each.first, each.last}) {
      numbers.push_back(static_cast<double>(number));
    }
  }
  return numbers;
}

std::optional<OverlayPlan> OverlayPlan::Unpack(std::span<const double> numbers) {
  OverlayPlan plan;
  std::uint8_t direction = 0, reports = 0;
  std::uint32_t targets = 0;
  if (numbers.size() < kPlanHead || !Read(numbers[0] - kPlan, direction) || direction > 1 ||
      !Read(numbers[1], plan.root) || !Read(numbers[2], plan.awaited) || !Read(numbers[3], reports) ||
      reports > 1 || !Read(numbers[4], targets) || targets > numbers.size() - kPlanHead) {
    return std::nullopt;
  }
  plan.direction = static_cast<Direction>(direction);
  plan.reports = reports != 0;
  if (plan.direction == Direction::kPush ? targets > 1 : plan.awaited > 0) return std::nullopt;
  plan.targets.resize(targets);
  for (std::size_t i = 0; i < targets; ++i) {
    if (!Read(numbers[kPlanHead + i], plan.targets[i])) return std::nullopt;
  }
  const std::span<const double> rest = numbers.subspan(kPlanHead + targets);
  if (rest.size() % kPlanRow != 0) return std::nullopt;
  for (std::size_t i = 0; i < rest.size(); i += kPlanRow) {
    Rounds each;
    if (!Read(rest[i], each.key) || !Read(rest[i + 1], each.shard) || !Read(rest[i + 2], each.first) ||
        !Read(rest[i + 3], each.last) || each.first == 0 || each.last < each.first) {
      return std::nullopt;
    }
    plan.shards.push_back(each);
  }
  return plan;
}

}  // namespace geomx
