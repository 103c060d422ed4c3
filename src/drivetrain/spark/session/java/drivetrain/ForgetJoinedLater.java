package drivetrain;

import java.io.Serializable;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.Inner$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper$JoinStateValueWatermarkPredicate;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper$JoinStateWatermarkPredicate;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper$JoinStateWatermarkPredicates;
import scala.Option;
import scala.Some;

/**
 * Lets the state of an inner join of streams keep messages for longer than they can match, instead of looking
 * for such messages in every batch.
 *
 * <p>Spark reads all of a join's state after each batch in which the watermark has moved, and deletes what
 * cannot match any more. What remains there could not match either: the join's condition says so. So the results
 * are the same whenever it is deleted. Here that happens when the watermark has moved by a quarter of the time
 * for which a message is needed, and not at all when it says that the input has ended.
 *
 * <p>Outer joins stay as they are: what they delete is their result.
 */
public class ForgetJoinedLater extends PlanChange {

  /** Of the time for which messages are needed, the part by which the watermark moves without a deletion. */
  private static final int PART = 4;

  /** Every watermark (ms) from here on means that the input has ended (`channel.watermark`). */
  private static final long ENDED_MS = 400000000000000L;

  /** How many queries are remembered; one that is forgotten deletes in its next batch. */
  private static final int REMEMBERED = 1000;

  /** The watermark at the last deletion, by the place of the state. */
  private static final Map DELETED_AT = Collections.synchronizedMap(new Newest());

  SparkPlan changed(SparkPlan plan) {
    return plan instanceof StreamingSymmetricHashJoinExec ? keptInState((StreamingSymmetricHashJoinExec) plan) : plan;
  }

  /** The join without a deletion in this batch, if it is not time for one. */
  private static SparkPlan keptInState(StreamingSymmetricHashJoinExec join) {
    Option left = join.stateWatermarkPredicates().left();
    Option right = join.stateWatermarkPredicates().right();
    boolean isInner = join.joinType() == Inner$.MODULE$;
    boolean isKnown = join.stateInfo().isDefined() && join.eventTimeWatermarkForEviction().isDefined();
    if (!isInner || !isKnown || !isByTime(left) || !isByTime(right)) {
      return join;
    }
    long nowMs = ((Long) join.eventTimeWatermarkForEviction().get()).longValue();
    long neededMs = nowMs - Math.min(untilMs(left), untilMs(right));
    StatefulOperatorStateInfo of = (StatefulOperatorStateInfo) join.stateInfo().get();
    String place = of.queryRunId() + " " + of.checkpointLocation() + " " + of.operatorId();
    if (isTimeToDelete(place, nowMs, neededMs)) {
      return join;
    }
    return join.copy(
        join.leftKeys(), join.rightKeys(), join.joinType(), join.condition(), join.stateInfo(),
        join.eventTimeWatermarkForLateEvents(), join.eventTimeWatermarkForEviction(),
        new StreamingSymmetricHashJoinHelper$JoinStateWatermarkPredicates(later(left), later(right)),
        join.stateFormatVersion(), join.left(), join.right(), join.outputMode());
  }

  /** Whether messages are deleted at a watermark; the same answer if the batch is planned again. */
  private static boolean isTimeToDelete(String place, long nowMs, long neededMs) {
    if (nowMs >= ENDED_MS) {
      DELETED_AT.remove(place);
      return false;
    }
    Long beforeMs = (Long) DELETED_AT.get(place);
    if (beforeMs != null && beforeMs.longValue() < nowMs && nowMs - beforeMs.longValue() < neededMs / PART) {
      return false;
    }
    DELETED_AT.put(place, Long.valueOf(nowMs));
    return true;
  }

  private static boolean isByTime(Option predicate) {
    return predicate.isDefined()
        && predicate.get() instanceof StreamingSymmetricHashJoinHelper$JoinStateValueWatermarkPredicate;
  }

  private static long untilMs(Option predicate) {
    return ((StreamingSymmetricHashJoinHelper$JoinStateValueWatermarkPredicate) predicate.get()).stateWatermark();
  }

  private static Option later(Option predicate) {
    return new Some(new Later(((StreamingSymmetricHashJoinHelper$JoinStateWatermarkPredicate) predicate.get()).expr()));
  }

  /** The entries that were used last. */
  private static class Newest extends LinkedHashMap {

    Newest() {
      super(16, 0.75f, true);
    }

    protected boolean removeEldestEntry(Map.Entry oldest) {
      return size() > REMEMBERED;
    }
  }

  /** What is deleted later: Spark knows that there is something, and runs a batch when the watermark moves. */
  public static class Later implements StreamingSymmetricHashJoinHelper$JoinStateWatermarkPredicate, Serializable {

    private final Expression of;

    public Later(Expression of) {
      this.of = of;
    }

    public Expression expr() {
      return of;
    }

    public String desc() {
      return "deleted later";
    }
  }
}
