#include "bindings/report.h"

#include <nanobind/stl/string.h>

#include <array>
#include <string>
#include <string_view>

#include "bindings/handles.h"

namespace nb = nanobind;

namespace geomx::io {

namespace {

nb::dict Rounds(const RoundReport& report) {
  nb::dict phases, children;
  for (const auto& [phase, seconds] : report.phases) phases[phase.c_str()] = seconds;
  for (const auto& [name, child] : report.children) {
    children[name.c_str()] = nb::make_tuple(child.last, child.held_s);
  }
  nb::dict rounds;
  rounds["phases"] = phases;
  rounds["children"] = children;
  return rounds;
}

}  // namespace

nb::dict StatsOf(Loop& loop) {
  Report report;
  {
    nb::gil_scoped_release unlocked;
    report = loop.GetReport();
  }
  nb::list links;
  for (const auto& [peer, counts] : report.links) {
    nb::dict link;
    link["peer"] = peer;
    link["push"] = Pair(counts.data[static_cast<int>(Direction::kPush)]);
    link["pull"] = Pair(counts.data[static_cast<int>(Direction::kPull)]);
    link["control_bytes"] = counts.control_bytes;
    link["busy_s"] = Seconds(counts.busy);
    for (const auto direction : {Direction::kPush, Direction::kPull}) {
      const LinkCounts::Values& values = counts.values[static_cast<int>(direction)];
      const char* key = direction == Direction::kPush ? "push_values" : "pull_values";
      link[key] = nb::make_tuple(values.count, Seconds(values.time));
    }
    links.append(link);
  }
  nb::list states;
  for (const auto& [peer, known] : report.states) {
    nb::dict state;
    state["peer"] = peer;
    state["connected"] = known.connected;
    state["connections"] = known.connections;
    state["silent_s"] = Seconds(known.silent);
    state["queued_bytes"] = known.queued_bytes;
    state["suspect"] = known.suspect;
    state["suspicions"] = known.suspicions;
    states.append(state);
  }
  nb::dict node;
  node["rounds"] = report.node.rounds;
  node["late_slices"] = report.node.late_slices;
  node["refused_slices"] = report.node.refused_slices;
  node["missing_slices"] = report.node.missing_slices;
  node["dropped_slices"] = report.node.dropped_slices;
  node["staleness_sum"] = report.node.staleness_sum;
  node["staleness_max"] = report.node.staleness_max;
  node["partial_rounds"] = report.node.partial_rounds;
  node["non_finite_pushes"] = report.node.non_finite_pushes;
  node["shards"] = report.node.shards;
  nb::dict stats;
  stats["links"] = links;
  stats["states"] = states;
  stats["node"] = node;
  stats["rounds"] = report.rounds ? Rounds(*report.rounds) : nb::dict();
  nb::dict handled;
  for (const auto& [category, time] : report.handled) handled[std::string(category).c_str()] = Seconds(time);
  stats["handled"] = handled;
  stats["datagrams_sent"] = report.datagrams.sent;
  stats["datagrams_received"] = report.datagrams.received;
  stats["datagrams_refused"] = report.datagrams.refused;
  stats["datagrams_unsent"] = report.datagrams.unsent;
  stats["lost_messages"] = report.lost_messages;
  stats["refused_callers"] = report.refused_callers;
  stats["held_bytes_max"] = report.held_bytes_max;
  stats["spans_dropped"] = report.spans_dropped;
  stats["paced_pushes"] = report.paced_pushes;
  stats["behind_s"] = Seconds(report.behind);
  return stats;
}

nb::dict ResidualNormsOf(Loop& loop) {
  std::array<double, kDirections> norms{};
  {
    nb::gil_scoped_release unlocked;
    norms = loop.ResidualNorms();
  }
  nb::dict out;
  out["push"] = norms[static_cast<int>(Direction::kPush)];
  out["pull"] = norms[static_cast<int>(Direction::kPull)];
  return out;
}

nb::list SpansOf(const Loop& loop) {
  nb::list spans;
  for (const Span& span : loop.Spans()) {
    const bool send = std::string_view(span.category) == "send";
    nb::dict about;
    about["key"] = span.key;
    if (send) about["shard"] = span.shard;
    about["round"] = span.round;
    if (send) about["bytes"] = span.bytes;
    if (span.channel > 0) about["channel"] = span.channel;
    const std::string name =
        send ? std::string(KindName(span.kind)) + " to " + span.peer : span.category;
    spans.append(nb::make_tuple(name, span.category, Seconds(span.start), Seconds(span.duration),
                                about));
  }
  return spans;
}

}  // namespace geomx::io
