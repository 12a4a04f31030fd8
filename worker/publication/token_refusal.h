// Why a publication token is refused. The word is all that is ever said: whoever presents a token
// that is no good learns nothing about those that are.
#ifndef PERIGEE_WORKER_PUBLICATION_TOKEN_REFUSAL_H_
#define PERIGEE_WORKER_PUBLICATION_TOKEN_REFUSAL_H_

namespace perigee {

enum class TokenRefusal {
  kNone,             // it is good
  kStaleGeneration,  // of another generation than the one that lives here
  kWrongRank,        // of another rank
  kForged,           // not as the coordinator has signed it
  kWrongBuffer,      // of another buffer
  kUnknown,          // its serial was not granted here, or it permits something else
  kExpired,          // too old
  kSpent,            // it was spent before
};

// "STALE_GENERATION"; kNone has no word.
constexpr const char* WordFor(TokenRefusal refusal) {
  switch (refusal) {
    case TokenRefusal::kNone:
      break;
    case TokenRefusal::kStaleGeneration:
      return "STALE_GENERATION";
    case TokenRefusal::kWrongRank:
      return "WRONG_RANK";
    case TokenRefusal::kForged:
      return "FORGED";
    case TokenRefusal::kWrongBuffer:
      return "WRONG_BUFFER";
    case TokenRefusal::kUnknown:
      return "UNKNOWN";
    case TokenRefusal::kExpired:
      return "EXPIRED";
    case TokenRefusal::kSpent:
      return "SPENT";
  }
  return "";
}

}  // namespace perigee

#endif  // PERIGEE_WORKER_PUBLICATION_TOKEN_REFUSAL_H_
