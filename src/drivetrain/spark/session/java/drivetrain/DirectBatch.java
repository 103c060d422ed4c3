package drivetrain;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper;
import org.apache.spark.sql.execution.streaming.sources.WriteToMicroBatchDataSourceV1;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The batch that a query is running, as a plan over its files instead of rows that are computed already.
 *
 * <p>Spark gives the function of `foreachBatch` the rows of a batch, of which it knows no more than their columns: it
 * reads all columns from the files, whatever the function does with them. With the plan, Spark reads the columns and
 * the groups of rows that are needed.
 */
public class DirectBatch {

  /**
   * The batch of the query in whose thread this is called, and which `owner` has started; null if it is more than
   * files, projected and filtered. `session` is the query's own.
   */
  public static Dataset of(SparkSession session, SparkSession owner) {
    String id = session.sparkContext().getLocalProperty("sql.streaming.queryId");
    Object query = id == null ? null : owner.streams().get(id);
    if (!(query instanceof StreamingQueryWrapper)) {
      return null;
    }
    StreamExecution running = ((StreamingQueryWrapper) query).streamingQuery();
    LogicalPlan plan = running.lastExecution().logical();
    if (plan instanceof WriteToMicroBatchDataSourceV1) {
      plan = (LogicalPlan) plan.children().apply(0);
    }
    plan = readable(plan);
    return plan == null ? null : org.apache.spark.sql.classic.Dataset.ofRows(session, plan);
  }

  private static LogicalPlan readable(LogicalPlan plan) {
    if (plan instanceof LogicalRelation) {
      LogicalRelation files = (LogicalRelation) plan;
      return files.copy(
          files.relation(), files.output(), files.catalogTable(), false, scala.Option.empty());
    }
    if (!(plan instanceof Project) && !(plan instanceof Filter)) {
      return null;
    }
    LogicalPlan child = readable((LogicalPlan) plan.children().apply(0));
    if (child == null) {
      return null;
    }
    return (LogicalPlan)
        plan.withNewChildren(
            CollectionConverters.asScala(java.util.Collections.singletonList(child)).toSeq());
  }
}
