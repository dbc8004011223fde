// geomx_faults: runs clusters of the shipped core under randomly drawn faults, in virtual time.
//
//   geomx_faults --seeds 1000 [--first 1] [--jobs 2] [--until-broken]    runs seeds 1 to 1000
//   geomx_faults --seed 17 [--keep 0,3] [--note]         runs one, with these of its faults; --note prints a trace
//
// If a seed breaks a law, its faults are reduced to those that still break one, and the command that repeats
// them is printed.
// Exit status: 0 if no law was broken, 1 otherwise, 2 for a wrong command line.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "faults/world.h"

namespace geomx::faults {
namespace {

struct Arguments {
  std::uint64_t first = 1, count = 1;
  unsigned jobs = 1;
  bool note = false, shrink = true, until_broken = false;
  std::optional<std::vector<std::size_t>> keep;
};

struct Totals {
  std::uint64_t seeds = 0, broken = 0, faults = 0, actions = 0, messages = 0, resets = 0, kills = 0;
  std::uint64_t recovered = 0, repeats = 0, suspicions = 0, partial = 0, late = 0;
  double virtual_s = 0;
  std::size_t most_kept = 0, most_queued = 0;

  void Add(const Experiment& experiment, const Outcome& outcome) {
    ++seeds;
    broken += outcome.broken.empty() ? 0 : 1;
    faults += experiment.faults.size();
    actions += outcome.actions;
    messages += outcome.counts.messages;
    resets += outcome.resets;
    kills += outcome.kills;
    recovered += outcome.counts.recovered;
    repeats += outcome.counts.repeats;
    suspicions += outcome.suspicions;
    for (const auto& [shard, closed] : outcome.history.partial) {
      partial += closed.size();
      for (const History::Closed& each : closed) late += each.late.size();
    }
    virtual_s += static_cast<double>(outcome.end) / kSecond;
    most_kept = std::max(most_kept, outcome.counts.most_kept);
    most_queued = std::max(most_queued, outcome.counts.most_queued);
  }
};

std::vector<Fault> Chosen(const Experiment& experiment, const std::vector<std::size_t>& keep) {
  std::vector<Fault> chosen;
  for (const std::size_t i : keep) chosen.push_back(experiment.faults.at(i));
  return chosen;
}

std::vector<std::size_t> All(const Experiment& experiment) {
  std::vector<std::size_t> all(experiment.faults.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

// Returns a subset of the faults that still breaks a law, perhaps another one.
std::vector<std::size_t> Shrink(const Experiment& experiment, std::vector<std::size_t> keep) {
  for (std::size_t i = keep.size(); i-- > 0;) {
    std::vector<std::size_t> fewer = keep;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (!Try(experiment, Chosen(experiment, fewer), false).broken.empty()) keep = fewer;
  }
  return keep;
}

void Tell(const Experiment& experiment, const Outcome& outcome, const Arguments& arguments) {
  std::vector<std::size_t> keep = arguments.keep.value_or(All(experiment));
  std::string broken = outcome.broken;
  if (arguments.shrink && keep.size() > 1) {
    keep = Shrink(experiment, keep);
    broken = Try(experiment, Chosen(experiment, keep), false).broken;
  }
  std::string numbers, words;
  for (const std::size_t i : keep) {
    numbers += (numbers.empty() ? "" : ",") + std::to_string(i);
    words += (words.empty() ? "" : "; ") + ToString(experiment.faults[i]);
  }
  std::printf("seed %llu breaks a law: %s\n  %zu of %zu faults: %s\n  geomx_faults --seed %llu --keep %s\n",
              static_cast<unsigned long long>(experiment.seed), broken.c_str(), keep.size(),
              experiment.faults.size(), words.c_str(), static_cast<unsigned long long>(experiment.seed),
              numbers.empty() ? "none" : numbers.c_str());
  std::fflush(stdout);
}

Totals TryAll(const Arguments& arguments) {
  Totals totals;
  std::mutex mutex;
  std::atomic<std::uint64_t> next = arguments.first;
  const auto work = [&] {
    for (std::uint64_t seed; (seed = next++) < arguments.first + arguments.count;) {
      const Experiment experiment = Draw(seed);
      const auto keep = arguments.keep.value_or(All(experiment));
      if (arguments.note) std::printf("%s\n", ToString(experiment).c_str());
      const Outcome outcome = Try(experiment, Chosen(experiment, keep), arguments.note);
      const std::lock_guard lock(mutex);
      totals.Add(experiment, outcome);
      if (outcome.broken.empty()) continue;
      Tell(experiment, outcome, arguments);
      if (arguments.until_broken) next = arguments.first + arguments.count;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < arguments.jobs; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return totals;
}

// Throws std::invalid_argument, also below, unless `text` is a number of at least `least` and nothing else.
std::uint64_t Number(const std::string& word, std::string_view text, std::uint64_t least) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && stop == end && number >= least) return number;
  throw std::invalid_argument(word + " " + std::string(text) + ": must be a whole number from " +
                              std::to_string(least));
}

std::vector<std::size_t> Numbers(const std::string& word, std::string_view text) {
  std::vector<std::size_t> numbers;
  if (text == "none") return numbers;
  while (true) {
    const std::size_t comma = text.find(',');
    numbers.push_back(Number(word, text.substr(0, comma), 0));
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--until-broken") {
      arguments.until_broken = true;
      arguments.shrink = false;
      continue;
    }
    if (word == "--note") {
      arguments.note = true;
      arguments.shrink = false;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(word + ": unknown, or a value is missing");
    const char* const value = argv[++i];
    if (word == "--seed" || word == "--first") {
      arguments.first = Number(word, value, 0);
    } else if (word == "--seeds") {
      arguments.count = Number(word, value, 1);
    } else if (word == "--jobs") {
      arguments.jobs = static_cast<unsigned>(Number(word, value, 1));
    } else if (word == "--keep") {
      arguments.keep = Numbers(word, value);
    } else {
      throw std::invalid_argument(word + ": unknown");
    }
  }
  if (!arguments.keep) return arguments;
  if (arguments.count != 1) throw std::invalid_argument("--keep: needs --seed; its numbers are of one seed's faults");
  const std::size_t faults = Draw(arguments.first).faults.size();
  for (const std::size_t each : *arguments.keep) {
    if (each < faults) continue;
    throw std::invalid_argument("--keep " + std::to_string(each) + ": seed " + std::to_string(arguments.first) +
                                " has " + std::to_string(faults) + " faults, numbered from 0");
  }
  return arguments;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  try {
    arguments = Parse(argc, argv);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s\n"
                         "usage: geomx_faults --seeds COUNT [--first SEED] [--jobs COUNT] [--until-broken]\n"
                         "       geomx_faults --seed SEED [--keep NUMBER,...|none] [--note]\n", error.what());
    return 2;
  }
  const auto began = std::chrono::steady_clock::now();
  const Totals totals = TryAll(arguments);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::printf("%llu seeds, %llu broken; %llu faults, %llu kills, %llu resets, %llu recoveries, %llu suspicions, "
              "%llu messages, %llu repeats, %llu rounds without some members, %llu late contributions; at most %zu "
              "messages kept and %zu queued on a link; %.0f s of virtual time in %.1f s\n",
              static_cast<unsigned long long>(totals.seeds), static_cast<unsigned long long>(totals.broken),
              static_cast<unsigned long long>(totals.faults), static_cast<unsigned long long>(totals.kills),
              static_cast<unsigned long long>(totals.resets), static_cast<unsigned long long>(totals.recovered),
              static_cast<unsigned long long>(totals.suspicions),
              static_cast<unsigned long long>(totals.messages), static_cast<unsigned long long>(totals.repeats),
              static_cast<unsigned long long>(totals.partial), static_cast<unsigned long long>(totals.late),
              totals.most_kept, totals.most_queued,
              totals.virtual_s, took.count());
  return totals.broken == 0 ? 0 : 1;
}

}  // namespace
}  // namespace geomx::faults

int main(int argc, char** argv) { return geomx::faults::Main(argc, argv); }
