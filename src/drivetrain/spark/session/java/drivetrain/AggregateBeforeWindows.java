package drivetrain;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.Partial$;
import org.apache.spark.sql.catalyst.expressions.aggregate.PartialMerge$;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.GenerateExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.aggregate.HashAggregateExec;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Aggregates the messages of a task before each is copied into all of its sliding windows.
 *
 * <p>Spark aggregates a task's rows first, and then the partial results of all tasks. With sliding windows the
 * rows of a task are copies: one of a message for each of its windows, made by an `explode` of the windows' ends,
 * which depend on the message's pane only. Here the messages are aggregated by key and pane, the partial results
 * are copied, and those are merged by key and window. The aggregate functions, what the tasks exchange, and the
 * state stay as they are.
 *
 * <p>A plan changes if and only if it has a partial hash aggregation, whose functions use no column that is made
 * after the `explode`, over one whose column has the name {@link #END}. Between them are projections and filters.
 */
public class AggregateBeforeWindows extends PlanChange {

  /** The column that `compile.sliding` explodes; nothing else has that name. */
  public static final String END = "__window_end_us";

  SparkPlan changed(SparkPlan plan) {
    SparkPlan made = plan instanceof HashAggregateExec ? aggregatedBefore((HashAggregateExec) plan) : null;
    return made == null ? plan : made;
  }

  /** The aggregation in two steps, with the windows between them; null if it has to stay. */
  private static SparkPlan aggregatedBefore(HashAggregateExec whole) {
    List between = new ArrayList(); // from the aggregation down
    SparkPlan below = whole.child();
    while (below instanceof ProjectExec || below instanceof FilterExec) {
      between.add(below);
      below = (SparkPlan) below.children().apply(0);
    }
    if (!(below instanceof GenerateExec) || !makesWindows((GenerateExec) below)) {
      return null;
    }
    GenerateExec windows = (GenerateExec) below;
    if (!areAllPartial(whole.aggregateExpressions()) || !areOf(whole.aggregateExpressions(), windows.child())) {
      return null;
    }
    List needed = new ArrayList(); // by each plan of `between`, from the one above it
    Map wanted = references(whole.groupingExpressions());
    for (int i = 0; i < between.size(); i++) {
      needed.add(new LinkedHashMap(wanted));
      if (!isDeterministic((SparkPlan) between.get(i))) {
        return null;
      }
      wanted = wantedBelow((SparkPlan) between.get(i), wanted);
    }
    wanted.remove(ended(windows).exprId());
    Map keys = new LinkedHashMap(wanted);
    keys.putAll(references(seq(windows.generator())));
    if (!areOf(seq(new ArrayList(keys.values())), windows.child())) {
      return null;
    }
    return inTwoSteps(whole, between, needed, windows, wanted, keys);
  }

  private static SparkPlan inTwoSteps(
      HashAggregateExec whole, List between, List needed, GenerateExec windows, Map passed, Map keys) {
    List buffers = new ArrayList();
    List merging = new ArrayList();
    for (int i = 0; i < whole.aggregateExpressions().length(); i++) {
      AggregateExpression of = (AggregateExpression) whole.aggregateExpressions().apply(i);
      buffers.addAll(list(of.aggregateFunction().inputAggBufferAttributes()));
      merging.add(
          of.copy(of.aggregateFunction(), PartialMerge$.MODULE$, of.isDistinct(), of.filter(), of.resultId()));
    }
    SparkPlan made =
        whole.copy(
            whole.requiredChildDistributionExpressions(), whole.isStreaming(), whole.numShufflePartitions(),
            seq(new ArrayList(keys.values())), whole.aggregateExpressions(), whole.aggregateAttributes(), 0,
            joined(keys, buffers), windows.child());
    made =
        windows.copy(
            windows.generator(), joined(passed, buffers), windows.outer(), windows.generatorOutput(), made);
    for (int i = between.size() - 1; i >= 0; i--) {
      made = above(made, (SparkPlan) between.get(i), (Map) needed.get(i), buffers);
    }
    Map grouped = references(whole.groupingExpressions());
    made = new ProjectExec(joined(grouped, buffers), made); // the merging step takes the last columns
    return whole.copy(
        whole.requiredChildDistributionExpressions(), whole.isStreaming(), whole.numShufflePartitions(),
        whole.groupingExpressions(), seq(merging), whole.aggregateAttributes(), grouped.size(),
        whole.resultExpressions(), made);
  }

  /** A projection or a filter over partial results, of which it keeps all `buffers`. */
  private static SparkPlan above(SparkPlan below, SparkPlan plan, Map needed, List buffers) {
    if (plan instanceof FilterExec) {
      return new FilterExec(((FilterExec) plan).condition(), below);
    }
    List kept = new ArrayList();
    Seq columns = ((ProjectExec) plan).projectList();
    for (int i = 0; i < columns.length(); i++) {
      if (needed.containsKey(((NamedExpression) columns.apply(i)).exprId())) {
        kept.add(columns.apply(i));
      }
    }
    kept.addAll(buffers);
    return new ProjectExec(seq(kept), below);
  }

  /** What a plan needs from below itself for the columns that are wanted from it. */
  private static Map wantedBelow(SparkPlan plan, Map wanted) {
    if (plan instanceof FilterExec) {
      Map all = new LinkedHashMap(wanted);
      all.putAll(references(seq(((FilterExec) plan).condition())));
      return all;
    }
    List used = new ArrayList();
    Seq columns = ((ProjectExec) plan).projectList();
    for (int i = 0; i < columns.length(); i++) {
      if (wanted.containsKey(((NamedExpression) columns.apply(i)).exprId())) {
        used.add(columns.apply(i));
      }
    }
    return references(seq(used));
  }

  private static boolean makesWindows(GenerateExec plan) {
    return plan.generatorOutput().length() == 1 && ended(plan).name().equals(END) && !plan.outer();
  }

  private static Attribute ended(GenerateExec plan) {
    return (Attribute) plan.generatorOutput().apply(0);
  }

  private static boolean areAllPartial(Seq expressions) {
    for (int i = 0; i < expressions.length(); i++) {
      AggregateExpression of = (AggregateExpression) expressions.apply(i);
      if (of.mode() != Partial$.MODULE$ || of.isDistinct() || !of.deterministic()) {
        return false;
      }
    }
    return expressions.length() > 0;
  }

  private static boolean isDeterministic(SparkPlan plan) {
    Seq expressions = plan.expressions();
    for (int i = 0; i < expressions.length(); i++) {
      if (!((Expression) expressions.apply(i)).deterministic()) {
        return false;
      }
    }
    return true;
  }

  /** Whether expressions use only columns of this plan. */
  private static boolean areOf(Seq expressions, SparkPlan plan) {
    Map there = new HashMap();
    for (int i = 0; i < plan.output().length(); i++) {
      Attribute column = (Attribute) plan.output().apply(i);
      there.put(column.exprId(), column);
    }
    return there.keySet().containsAll(references(expressions).keySet());
  }

  /** The columns that expressions use, by their identities. */
  private static Map references(Seq expressions) {
    Map found = new LinkedHashMap();
    for (int i = 0; i < expressions.length(); i++) {
      List of = list(((Expression) expressions.apply(i)).references().toSeq());
      for (int n = 0; n < of.size(); n++) {
        found.put(((Attribute) of.get(n)).exprId(), of.get(n));
      }
    }
    return found;
  }

  private static Seq joined(Map columns, List more) {
    List all = new ArrayList(columns.values());
    all.addAll(more);
    return seq(all);
  }

  private static List list(Seq of) {
    List all = new ArrayList();
    for (int i = 0; i < of.length(); i++) {
      all.add(of.apply(i));
    }
    return all;
  }

  private static Seq seq(Object one) {
    List all = new ArrayList();
    all.add(one);
    return seq(all);
  }

  private static Seq seq(List of) {
    return CollectionConverters.asScala(of).toSeq();
  }
}
