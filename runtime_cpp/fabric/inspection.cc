// What a run has counted, for its results.
#include "fabric/fabric.h"

namespace geomx {

std::vector<Time> Fabric::Worked() const {
  std::vector<Time> worked;
  worked.reserve(endpoints_.size());
  for (const Endpoint& endpoint : endpoints_) worked.push_back(endpoint.worked);
  return worked;
}

std::vector<LinkStats> Fabric::Links() const {
  std::vector<LinkStats> stats;
  stats.reserve(links_.size());
  for (const Link& link : links_) stats.push_back(link.stats);
  return stats;
}

}  // namespace geomx
